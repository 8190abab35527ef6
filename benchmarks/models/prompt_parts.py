"""What each part of each role's prompt costs, and which scripted replies depend on it.

    python benchmarks/models/prompt_parts.py [--out FILE]

A run on the text device asks a model in every role, which answers by rule from what its prompt says
(tests/support/every_role.py). Each prompt is then taken once more without each of its sections in
turn: told are the tokens that the section has, and whether the same rule still gives the same
reply, another one, or one that the role's checks refuse (or none at all). A part on which no such
reply depends may matter to a model that thinks: this says what a part costs and who reads it by
rule, and nothing of what it is worth.

Tokens are a quarter of the characters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernelblaster.tools.models.asking import Asker
from kernelblaster.tools.models.fitting import appended_to, without
from kernelblaster.tools.models.records import Message
from kernelblaster.tools.models.reply_forms import RawReply, as_langchain

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import graph_support  # noqa: E402
from asked import Asked  # noqa: E402
from every_role import every_role, good  # noqa: E402
from scripted_chat_model import CURRENT, use  # noqa: E402

REPLIES = ("same", "another", "refused")


class Asking(NamedTuple):
    """One question as it was asked."""

    role: str
    messages: tuple[Message, ...]
    read: Callable[[RawReply], Any]


class Part(NamedTuple):
    """One section of one prompt."""

    role: str
    title: str
    kept: bool
    """Whether it stays whatever the budget."""
    tokens: int
    reply: str
    """What becomes of the scripted reply without it: one of `REPLIES`."""


def asked_in_a_run(folder: Path, agents: str) -> list[Asking]:
    """Return what a run asks, in order."""
    found: list[Asking] = []
    real = Asker._ask

    async def spy(self: Asker, role: Any, place: Any, messages: Any, read: Any, form: Any) -> Any:
        found.append(Asking(role, messages, read))
        return await real(self, role, place, messages, read, form)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Asker, "_ask", spy)
        graph_support.install(patch.setattr)
        session = Asked.of(
            task="text.py", knowledge=str(folder / "kb"), iterations=2, rollouts=2, steps=3,
            agents=agents, model=CURRENT, models=use(patch, every_role()),
        ).session(folder / "run")  # fmt: skip
        try:
            asyncio.run(session.run(lambda event: None))
        finally:
            session.close()
    return found


def parts_of(asking: Asking) -> Iterator[Part]:
    """Yield the parts of a question: the system's message, and each section of the user's."""
    whole = _reply(asking, asking.messages)
    for at, message in enumerate(asking.messages):
        if message.role == "system":
            yield Part(asking.role, "(system)", True, -(-message.length // 4), "")
        appended = appended_to(message)
        if appended.strip():
            yield Part(asking.role, "(form of the reply)", True, -(-len(appended) // 4), "")
        for place, section in enumerate(message.sections):
            lacking = without(message, place, named=False)
            others = (*asking.messages[:at], lacking, *asking.messages[at + 1 :])
            reply = _reply(asking, others)
            became = "refused" if reply is None else "same" if reply == whole else "another"
            size = message.length - lacking.length
            yield Part(asking.role, section.title, section.keep is None, -(-size // 4), became)


def _reply(asking: Asking, messages: tuple[Message, ...]) -> str | None:
    """Return the scripted reply to a prompt; None where there is none, or the checks refuse it."""
    try:
        said = good(asking.role)([as_langchain(each) for each in messages])
        text = said if isinstance(said, str) else json.dumps(said)
        asking.read(RawReply(text=text, finish_reason="stop"))
    except Exception:  # Whatever a script or a check says of a prompt that lacks a part.
        return None
    return text


def table(parts: list[Part], agents: str) -> str:
    """Return a line a part, by role, the dearest first."""
    grouped: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in parts:
        grouped[part.role, part.title or "(task)"].append(part)
    sums = {key: sum(each.tokens for each in found) for key, found in grouped.items()}
    by_role: dict[str, int] = defaultdict(int)
    for (role, _), size in sums.items():
        by_role[role] += size
    lines = [f"--agents {agents}", f"  {'':40} calls tokens  of role  stays  " + "  ".join(REPLIES)]
    for (role, title), found in sorted(
        grouped.items(), key=lambda item: (-by_role[item[0][0]], item[0][0], -sums[item[0]])
    ):
        counts = [sum(each.reply == name for each in found) for name in REPLIES]
        pairs = zip(counts, REPLIES, strict=True)
        told = "  ".join(f"{count:{len(name)}}" for count, name in pairs)
        stays = "yes" if found[0].kept else "no"
        lines.append(
            f"  {role + ': ' + title:40.40} {len(found):5} {sums[role, title] / len(found):6.0f} "
            f"{sums[role, title] / by_role[role]:8.0%}  {stays:5}  {told}"
        )
    return "\n".join(lines)


def main() -> None:
    """Ask, take apart, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    texts = []
    for agents in ("full", "compact"):
        with tempfile.TemporaryDirectory(prefix="prompt-parts-") as folder:
            asked = asked_in_a_run(Path(folder), agents)
        parts = [part for each in asked for part in parts_of(each)]
        texts.append(table(parts, agents))
        print(texts[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
