"""What full and compact agents cost: calls and tokens a step, and what they came to.

    python benchmarks/models/agents_cost.py [--tasks softmax,matmul,layer_norm] [--steps 4] \
        [--rollouts 2] [--iterations 2]

Runs on the simulated H100, every role that reads, proposes, chooses or judges given to one model;
kernels are written by the library, so that both ways try the same things. The model answers by
fixed rules from its prompt alone: it proposes the four techniques listed first, chooses the first
that is not yet tried, and says one sentence wherever words are asked for. So calls and prompts are
those of a real run, replies are as short as their form allows, and the gain says that nothing is
lost by asking together, not what a better model would gain. Tokens are a quarter of the characters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from answering import Answering, text_of
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from kernelblaster.graph.session import Session
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.plan import Agents, OptimizeRequest, RunContext
from kernelblaster.tools.models.records import ModelPlan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROLES = (
    "state_extractor", "state_selector", "optimization_proposer", "optimization_selector",
    "policy_evaluation", "gap_analysis", "parameter_update",
)  # fmt: skip
WIDE = 4
"""Techniques proposed in a reply."""

Reply = dict[str, Any]


def found(pattern: str, prompt: str) -> list[Any]:
    """Return all matches of a pattern, line by line."""
    return re.findall(pattern, prompt, re.MULTILINE)


def section(title: str, prompt: str) -> str:
    """Return the text of one section of a prompt; empty where there is none."""
    _, _, after = prompt.partition(f"## {title}")
    return after.partition("\n## ")[0]


def extractor(prompt: str) -> Reply:
    (primary,) = found(r"(?:counters|time) says: (\w+) first", prompt)
    return {"primary": primary, "secondary": None, "description": "It waits for it.",
            "features": ["as listed"]}  # fmt: skip


def matched(prompt: str, title: str) -> Reply:
    known = found(r"^- (\w+): .*distance", section(title, prompt))
    if known:
        return {"state": known[0], "reason": "It is the nearest."}
    return {"state": "new", "name": f"found in {len(prompt)} characters", "description": "As told.",
            "reason": "None is near."}  # fmt: skip


def proposed(prompt: str) -> Reply:
    names = found(r"^- (\w+): ", section("Known techniques", prompt))[:WIDE]
    return {"proposals": [{"technique": name, "reason": "It is listed.", "new": None}
                          for name in names]}  # fmt: skip


def chosen(prompt: str) -> Reply:
    names = found(r"^- (\w+)(?: \(|:)", section("Proposals", prompt))
    return {"technique": names[0], "reason": "It comes first."}


def decided(prompt: str) -> Reply:
    said = proposed(prompt)
    standing = found(r"one of your proposals or of ([\w, ]+)\.", prompt)
    names = [each["technique"] for each in said["proposals"]]
    names += [name for text in standing for name in text.split(", ")]
    state = None
    if "## The states that it may be in" in prompt or "`state`: the id" in prompt:
        state = matched(prompt, "The states that it may be in")
    choice = {"technique": (names or ["stop"])[0], "reason": "It comes first."}
    return said | {"choice": choice, "state": state}


def ids(prompt: str) -> list[tuple[str, str]]:
    return found(r"^- ([0-9a-f]{6,}) \(rollout .*?\): (\w+)", prompt)


def remarks(prompt: str) -> Reply:
    return {"remarks": [{"evidence": [name], "text": "It was a guess."}
                        for name, _ in ids(prompt)[:4]], "summary": "Guesses."}  # fmt: skip


def causes(prompt: str) -> Reply:
    gaps = found(r"^(\d+)\. ", section("The gaps, by number", prompt))[:4]
    return {"causes": [{"gap": int(at), "cause": "As the figures say."} for at in gaps]}


def notes(prompt: str) -> Reply:
    name, technique = ids(prompt)[0]
    return {"lessons": [{"kind": "condition", "techniques": [technique], "evidence": [name],
                         "text": "It pays where the figures say so."}]}  # fmt: skip


def reflected(prompt: str) -> Reply:
    return {"evaluation": remarks(prompt), "gaps": causes(prompt), "update": notes(prompt)}


ALONE: dict[str, Callable[[str], Reply]] = {
    "state_extractor": extractor,
    "state_selector": lambda prompt: matched(prompt, "Known states"),
    "optimization_proposer": proposed, "optimization_selector": chosen,
    "policy_evaluation": remarks, "gap_analysis": causes, "parameter_update": notes,
}  # fmt: skip
TOGETHER = {"optimization_proposer": decided, "parameter_update": reflected}


class ByRule(Answering):
    """A model that answers by fixed rules."""

    def reply_to(self, messages: list[BaseMessage], role: str) -> str:
        """Return what the rule of the role makes of the prompt."""
        prompt = text_of(messages)
        answer = (TOGETHER if "\nAll at once. " in prompt else ALONE)[role]
        return json.dumps(answer(prompt))


def by_rule() -> BaseChatModel:
    """Return the model that the runs here ask."""
    return ByRule()


class Cost(NamedTuple):
    """What one run took and came to."""

    steps: int
    calls: dict[str, int]
    """By role."""
    tokens_in: int
    tokens_out: int
    malformed: int
    gain: float


def run(name: str, agents: Agents, options: argparse.Namespace, folder: Path) -> Cost:
    """Run a task; return what it cost."""
    model = "import:agents_cost:by_rule"
    context = RunContext(
        device="simulated", gpu="H100", iterations=options.iterations, rollouts=options.rollouts,
        steps=options.steps, model=",".join(f"{role}={model}" for role in ROLES),
        models=ModelPlan(method="json_mode"), agents=agents, shapes=0,
        knowledge=str(folder / f"{name}-{agents}.kb"),
    )  # fmt: skip
    directory = folder / f"{name}-{agents}"
    request = OptimizeRequest(task=str(EXAMPLES / f"{name}.py"), run=str(directory))
    session = Session.create(request, context)
    try:
        result = asyncio.run(session.run())
    finally:
        session.close()
    with RunStore(directory / "run.sqlite") as store:
        steps = len(store.replay.steps())
        spent = store.ledger.by_role()
    return Cost(
        steps=steps,
        calls={each.role: each.calls for each in spent},
        tokens_in=sum(each.tokens_in for each in spent),
        tokens_out=sum(each.tokens_out for each in spent),
        malformed=sum(each.malformed for each in spent),
        gain=result.gain,
    )


def report(name: str, agents: str, cost: Cost) -> str:
    """Return one run in words."""
    roles = ", ".join(f"{role} {cost.calls[role]}" for role in ROLES if cost.calls.get(role))
    return (
        f"{name:<12} {agents:<8} {cost.steps:>3} steps; a step {_a_step(cost, 'calls'):.2f} calls, "
        f"{_a_step(cost, 'tokens_in'):.0f} tokens in, {_a_step(cost, 'tokens_out'):.0f} out; "
        f"{cost.malformed} malformed; gain {cost.gain:.2f}x; {roles}"
    )


def _a_step(cost: Cost, what: str) -> float:
    total = sum(cost.calls.values()) if what == "calls" else getattr(cost, what)
    return float(total) / cost.steps


def main() -> None:
    """Run the tasks both ways and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--tasks", default="softmax,matmul,layer_norm")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2)
    options = parser.parse_args()
    costs = dict[tuple[str, str], Cost]()
    with tempfile.TemporaryDirectory(prefix="agents-cost-") as folder:
        for name in options.tasks.split(","):
            for agents in reversed(get_args(Agents)):
                cost = costs[name, agents] = run(name, agents, options, Path(folder))
                print(report(name, agents, cost), flush=True)
    names = sorted({name for name, _ in costs})
    for what in ("calls", "tokens_in", "tokens_out"):
        ratios = [_a_step(costs[name, "compact"], what) / _a_step(costs[name, "full"], what)
                  for name in names]  # fmt: skip
        print(f"{what} a step, compact over full, geometric mean of {len(names)} tasks: "
              f"{statistics.geometric_mean(ratios):.2f}")  # fmt: skip
    gains = [costs[name, "compact"].gain / costs[name, "full"].gain for name in names]
    print(f"gain, compact over full: {statistics.geometric_mean(gains):.2f}")


if __name__ == "__main__":
    main()
