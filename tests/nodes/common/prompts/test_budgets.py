"""No prompt is larger than its role's budget, whatever is asked besides or was said before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import graph_support
import pytest
from asked import Asked
from every_role import every_role
from langchain_core.messages import BaseMessage
from scripted_chat_model import CURRENT, use

from kernelblaster.nodes.common.policies import RULES
from kernelblaster.nodes.common.prompts.render import conversation
from kernelblaster.tools.models import asking, records
from kernelblaster.tools.models.asking import estimate_tokens
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.models.fitting import fitted, of_sections, tokens_of
from kernelblaster.tools.models.records import Message, Role, Section

WRONG = fenced("us: 90.0\n// launch()\noutcome: wrong_answer\n")


def size_of(messages: list[BaseMessage]) -> int:
    return sum(estimate_tokens(str(each.content)) for each in messages)


@pytest.mark.parametrize("agents", ["full", "compact"])
def test_every_roles_prompt_keeps_to_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: str
) -> None:
    """Budgets are so tight that something must go; only what must stay may take more."""
    sent: list[tuple[Message, ...]] = []
    real = asking.fitted

    def spy(messages: Sequence[Message], budget: int) -> tuple[Message, ...]:
        sent.append(real(messages, budget))
        return sent[-1]

    monkeypatch.setattr(asking, "fitted", spy)
    budgets: dict[Role, int] = dict.fromkeys(records.CONTEXT_TOKENS, 1100)
    budgets |= {"optimization_proposer": 2900, "kernel_writer": 2400, "parameter_update": 2100}
    monkeypatch.setattr(records, "CONTEXT_TOKENS", budgets)
    graph_support.install(monkeypatch.setattr)
    # What fails is mended in a conversation.
    model = every_role(kernel_writer=[WRONG, WRONG.replace("90", "80")])
    request = Asked.of(
        task="text.py", knowledge=str(tmp_path / "kb"), iterations=2, rollouts=1, steps=2,
        agents=agents, model=CURRENT, models=use(monkeypatch, model),
    )  # fmt: skip
    session = request.session(tmp_path / "run")
    try:
        asyncio.run(session.run(lambda event: None))
    finally:
        session.close()
    roles = {call.role for call in model.calls}
    assert agents == "compact" or roles == set(RULES["kernelblaster"].roles)
    for call in model.calls:
        (messages,) = [each for each in sent if each[-1].content == call.messages[-1].content][:1]
        all_gone = all(part.keep is None for each in messages for part in each.sections)
        assert size_of(call.messages) <= budgets[call.role] or all_gone, call.role
    assert sum(bool(each.left_out) for messages in sent for each in messages) > 3


def exchange(number: int, tokens: int) -> tuple[Message, ...]:
    said = Message(role="assistant", content=f"{number}: " + "x" * (2 * tokens - 3))
    return said, Message(role="user", content="y" * 2 * tokens)


@pytest.mark.parametrize(("count", "kept"), [(0, []), (1, [0]), (3, [1, 2]), (9, [7, 8])])
def test_of_what_was_said_the_newest_stays_within_the_budget(count: int, kept: list[int]) -> None:
    context = {"failure": "wrong", "listing": "", "keep": "it"}
    exchanges = [exchange(number, 400) for number in range(count)]
    found = conversation("repair", 2000, exchanges, **context)
    replies = [each.content[0] for each in found if each.role == "assistant"]
    assert [int(number) for number in replies] == kept
    assert sum(estimate_tokens(each.content) for each in found) <= 2000


def test_what_an_attempt_said_last_stays_whatever_it_takes() -> None:
    (*_, last) = conversation(
        "repair", 100, [exchange(0, 400), exchange(1, 400)],
        failure="wrong", listing="", keep="it",
    )  # fmt: skip
    assert last.content.startswith("y")


def test_what_is_appended_counts_and_stays() -> None:
    sections = [Section(title="Kept", keep=None, text="x" * 40),
                Section(title="A title of many words", keep=2, text="y" * 40),
                Section(title="Less", keep=1, text="z" * 40)]  # fmt: skip
    whole = of_sections(sections)
    asked = whole.model_copy(update={"content": f"{whole.content}\n\nIts form: {'f' * 40}"})
    for budget in range(20, 80):
        (told,) = fitted([asked], budget)
        titles = [each.title for each in told.sections]
        assert tokens_of([told]) <= budget or titles == ["Kept"]
        assert titles in (["Kept", *titles[1:]], ["Kept"]) and "Less" not in told.left_out[1:]
        assert told.content.endswith("f" * 40) and fitted([told], budget) == (told,)
    assert fitted([asked], 80) == (asked,)
    assert "sections" not in asked.model_dump()
