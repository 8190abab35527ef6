"""A model that answers in every role, sensibly and always alike, from the prompt alone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from scripted_chat_model import Script, Scripted, ScriptedChatModel

from kernelblaster.tools.models.code_reply import fenced

NEW = "stage_rows_in_shared_memory"
"""A technique that the seed does not know."""
CARD = {
    "description": "Load each row once into shared memory.", "applies_when": "Rows fit there.",
    "avoid_when": "Rows are read once.", "side_effects": "Fewer blocks on an SM.",
    "notes": "One barrier after the loads.", "expected_speedup": 1.5,
    "parameters": [{"name": "rows", "values": [4, 8]}],
}  # fmt: skip
FACTORS = {NEW: 0.7, "fast_math": 0.9, "vectorize_memory_access": 1.1}
"""Time after over time before, by technique; others: 0.95."""


def initial_cuda(prompt: str) -> str:
    return fenced("us: 100.0\n// launch()\n")


def state_extractor(prompt: str) -> dict[str, Any]:
    return {
        "primary": found(r"(?:counters|time) says: (\w+) first", prompt), "secondary": None,
        "description": "Every byte goes through DRAM.", "features": ["DRAM is busy"],
    }  # fmt: skip


def state_selector(prompt: str) -> dict[str, Any]:
    known = re.findall(r"^- (\w+): .*distance", prompt, re.MULTILINE)
    if known:
        return {"state": known[0], "name": "", "description": "", "reason": "It is the nearest."}
    return {"state": "new", "name": "waits for rows", "description": "Rows come one by one.",
            "reason": "None fits."}  # fmt: skip


def optimization_proposer(prompt: str) -> dict[str, Any]:
    """Propose; asked all at once, also choose, and say which state it is where that is asked."""
    said = proposed(prompt)
    if "\nAll at once. " not in prompt:
        return said
    asked = prompt.partition("## The states that it may be in")[2]
    choice = {"technique": said["proposals"][0]["technique"], "reason": "It should gain most."}
    return said | {"choice": choice, "state": state_selector(asked) if asked else None}


def proposed(prompt: str) -> dict[str, Any]:
    refused = prompt.partition("## Not to be proposed")[2]
    named = prompt.partition("## Known techniques")[2]
    wanted = [name for name in FACTORS if f"- {name}:" not in refused]
    return {
        "proposals": [
            {"technique": name, "reason": f"{name} acts on it.",
             "new": CARD if f"- {name}: " not in named and name == NEW else None}
            for name in (*wanted, "unroll_loop")
        ]
    }  # fmt: skip


def optimization_selector(prompt: str) -> dict[str, Any]:
    (names,) = [re.findall(r"^- (\w+)(?: \(|:)", part, re.MULTILINE) for part in
                re.findall(r"## Proposals.*?\n\n", prompt, re.DOTALL)]  # fmt: skip
    wanted = [name for name in (NEW, *FACTORS) if name in names]
    return {"technique": (wanted or names)[0], "reason": "It should gain most."}


def kernel_writer(prompt: str) -> str:
    before = float(found(r"us: ([\d.]+)", prompt))
    technique = found(r"Apply (\w+) where the figures", prompt)
    lines = re.findall(r"^ *\d+>? ?(did: \w+)$", prompt, re.MULTILINE)
    after = round(before * FACTORS.get(technique, 0.95), 6)
    return fenced("\n".join([f"us: {after}", "// launch()", *lines, f"did: {technique}", ""]))


def soft_verifier(prompt: str) -> dict[str, Any]:
    return {"verdict": "accept", "objections": [], "summary": "It copies."}


def ids(prompt: str) -> list[tuple[str, str]]:
    """The ids of a prompt's steps, each with its technique."""
    return re.findall(r"^- ([0-9a-f]{6,}) \(rollout .*?\): (\w+)", prompt, re.MULTILINE)


def policy_evaluation(prompt: str) -> dict[str, Any]:
    return {
        "remarks": [{"evidence": [name], "text": f"{technique} was guessed."}
                    for name, technique in ids(prompt)],
        "summary": "Expectations of untried techniques are guesses.",
    }  # fmt: skip


def gap_analysis(prompt: str) -> dict[str, Any]:
    return {
        "causes": [{"gap": int(at), "cause": "Fewer bytes move.", "condition": "Rows are reread."}
                   for at in re.findall(r"^(\d+)\. ", prompt, re.MULTILINE)],
        "sequences": [],
    }  # fmt: skip


def parameter_update(prompt: str) -> dict[str, Any]:
    """Write lessons; asked all at once, also remark on the policy and explain the gaps."""
    if "\nAll at once. " not in prompt:
        return lessons(prompt)
    return {"evaluation": policy_evaluation(prompt), "gaps": gap_analysis(prompt),
            "update": lessons(prompt)}  # fmt: skip


def lessons(prompt: str) -> dict[str, Any]:
    name, technique = ids(prompt)[0]
    wanted = re.findall(r"^(\w+): ", prompt.partition("## Cards wanted")[2], re.MULTILINE)
    return {
        "lessons": [{"kind": "condition", "techniques": [technique], "evidence": [name],
                     "text": "It pays where rows are read again."}],
        "cards": [{"technique": each, "applies_when": "Rows are reread.",
                   "avoid_when": "Rows are short.", "side_effects": "", "notes": "Pad rows."}
                  for each in wanted],
    }  # fmt: skip


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, (pattern, text)
    return match[1]


ANSWERS: dict[str, Callable[[str], Any]] = {
    answer.__name__: answer
    for answer in (
        initial_cuda, state_extractor, state_selector, optimization_proposer,
        optimization_selector, kernel_writer, soft_verifier, policy_evaluation, gap_analysis,
        parameter_update,
    )
}  # fmt: skip


def good(role: str) -> Callable[[list[BaseMessage]], Any]:
    """Return the good reply of a role, as a function of the messages."""

    def reply(messages: list[BaseMessage]) -> Any:
        return ANSWERS[role]("\n\n".join(str(message.content) for message in messages))

    return reply


@dataclass
class Good(Script):
    """A script that never ends. Logs the beginning and the end of each call to $MODEL_LOG, and
    takes $MODEL_SECONDS for it."""

    def next(self, role: str) -> Scripted:
        own = self.by_role.get(role, [])
        if own:
            return own.pop(0)

        def reply(messages: list[BaseMessage]) -> Any:
            log(f"begin {role}")
            time.sleep(float(os.environ.get("MODEL_SECONDS", "0")))
            answer = good(role)(messages)
            log(f"end {role}")
            return answer

        return reply


def log(line: str) -> None:
    path = os.environ.get("MODEL_LOG")
    if path:
        with open(path, "a") as file:
            file.write(f"{line}\n")


def every_role(**by_role: list[Scripted]) -> ScriptedChatModel:
    """Return a model that first gives the replies listed for a role, then good ones."""
    return ScriptedChatModel(script=Good(by_role=dict(by_role)))


model = every_role()
"""For `import:every_role:model` in a child process."""
