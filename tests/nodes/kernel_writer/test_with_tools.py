"""Lowering by a model with tools: rounds of calls, their bound, what they cost, kills and caps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deferred_support
import pytest
from deferred_support import finish
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from model_role_support import Ran, run
from scripted_chat_model import CURRENT, Call, ScriptedChatModel, refusal, use
from text_runs import request, resume

from kernelblaster.graph.session import Capped
from kernelblaster.harness.errors import UserError
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.kernel_writer.tool_rounds import MOST_CALLS, MOST_ROUNDS, NO_MORE
from kernelblaster.tools.models.budgets import write_budgets
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.models.records import Budgets

GOOD = "us: 20.0\n// launch()\n"
RACE = "us: 10.0\n// launch()\noutcome: race\n"


def calls(*wanted: tuple[str, Any], text: str = "") -> AIMessage:
    """Return a reply that calls tools."""
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": arguments, "id": f"call_{number}"}
            for number, (name, arguments) in enumerate(wanted)
        ],
    )


def last_id(messages: Sequence[BaseMessage]) -> str:
    """Return the id of the kernel that the newest answer speaks of."""
    found = re.search(r"kernel-[0-9a-f]{12}", str(messages[-1].content))
    assert found is not None
    return found[0]


def submit(messages: Sequence[BaseMessage]) -> str:
    return f"It is faster.\nSUBMIT: {last_id(messages)}"


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, *replies: Any, **changes: Any) -> Ran:
    """Run one step with a model that writes kernels with tools."""
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    model = replies[0] if isinstance(replies[0], ScriptedChatModel) else ScriptedChatModel(replies)
    fields: dict[str, Any] = {"writer": "tools", "steps": 1, "repairs": 1}
    return run(folder, monkeypatch, model, "kernel_writer", **(fields | changes))


def answers_in(call: Call) -> list[str]:
    return [str(each.content) for each in call.messages if isinstance(each, ToolMessage)]


def test_a_kernel_is_tried_mended_and_submitted_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [
            calls(("compile_kernel", {"source": RACE}), ("run_kernel", {"source": RACE})),
            calls(("run_kernel", {"source": fenced(GOOD)}), text="A barrier was missing."),
            lambda messages: calls(("profile_kernel", {"source": last_id(messages)})),
            submit,
        ]
    )
    ran = write(tmp_path, monkeypatch, model)
    assert ran.result.best_us == 20.0 and ran.result.model_calls == 4
    (row,) = ran.evidence
    assert (row.repairs, row.outcome, row.author[:6]) == (0, "passed", "import")
    assert ran.result.outcomes["race"] == 1, "what a tool refused is counted"
    told = answers_in(model.calls[-1])
    assert "compiles" in told[0] and "without a barrier" in told[1] and "is right" in told[2]
    assert "20 us" in told[3] and "Performance state" in told[3]
    kinds = [message.type for message in model.calls[-1].messages]
    assert kinds == ["system", "human", "ai", "tool", "tool", "ai", "tool", "ai", "tool"]
    assert [event["tool"] for event in ran.told("tool")] == [
        "compile_kernel", "run_kernel", "run_kernel", "profile_kernel"
    ]  # fmt: skip


def test_the_model_is_told_of_the_tools_and_the_file_has_an_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [
            lambda messages: calls(("profile_kernel", {"source": last_id(messages)})),
            fenced(GOOD),
        ]
    )
    write(tmp_path, monkeypatch, model)
    offered = {tool["function"]["name"] for tool in model.calls[0].options["tools"]}
    assert {"compile_kernel", "run_kernel", "profile_kernel", "apply_technique"} <= offered
    assert f"in {MOST_ROUNDS} replies at most" in model.calls[0].prompt
    assert "100 us" in answers_in(model.calls[1])[0], "the file's own profile"


def test_without_tools_the_prompt_speaks_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([fenced(GOOD)])
    write(tmp_path, monkeypatch, model, writer="replies")
    assert "SUBMIT" not in model.calls[0].prompt and "tools" not in model.calls[0].options


def test_rounds_and_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [("compile_kernel", {"source": f"us: {n}.0\n"}) for n in range(MOST_CALLS + 2)]
    model = ScriptedChatModel(
        [*[calls(*many)] * (MOST_ROUNDS + 1), fenced(GOOD)],
    )
    ran = write(tmp_path, monkeypatch, model)
    assert ran.result.best_us == 20.0 and len(model.calls) == MOST_ROUNDS + 2
    told = answers_in(model.calls[1])
    assert told[-2:] == [f"not called: at most {MOST_CALLS} calls a reply"] * 2
    assert model.calls[MOST_ROUNDS].messages[-1].content == NO_MORE
    assert "no more tools may be called" in str(model.calls[-1].messages[-1].content)


def test_drafts_spend_the_rollouts_share_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three besides the first kernel two are drafts, and the last is kept for the answer."""
    drafts = [("profile_kernel", {"source": f"us: {n}.0\n// launch()\n"}) for n in (50, 40, 30)]
    model = ScriptedChatModel([calls(*drafts), fenced(GOOD), fenced(GOOD)])
    ran = write(
        tmp_path, monkeypatch, model, steps=4, budgets=Budgets(evaluations=4), on_budget="finish"
    )
    told = answers_in(model.calls[1])
    assert "50 us" in told[0] and "40 us" in told[1] and "not called" in told[2]
    assert ran.result.evaluations == 4 and len(ran.steps) == 1
    assert ran.result.best_us == 20.0 and "4 evaluations" in ran.result.ended


def test_rounds_are_of_a_technique_not_of_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = calls(("search_knowledge", {"query": "latency"}))
    model = ScriptedChatModel([*[look] * MOST_ROUNDS, fenced(RACE), fenced(GOOD)])
    assert write(tmp_path, monkeypatch, model).result.best_us == 20.0
    last = str(model.calls[-1].messages[-1].content)
    assert "without a barrier" in last and last.endswith(NO_MORE)
    kinds = [message.type for message in model.calls[-1].messages]
    assert ("human", "human") not in set(zip(kinds, kinds[1:], strict=False))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("compile_kernel", {}), "source is missing"),
        (("no_such_tool", {"source": GOOD}), "there is no tool 'no_such_tool'"),
        (("show_task", {}), "there is no tool 'show_task'"),
        (("run_kernel", {"source": "kernel-0123456789ab"}), "there is no"),
        (("describe_technique", {"technique": "Fast-Math"}), "fast_math: "),
        (("search_knowledge", {"query": "latency"}), "latency"),
    ],
)
def test_every_call_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: tuple[str, Any], words: str
) -> None:
    model = ScriptedChatModel([calls(call), fenced(GOOD)])
    assert write(tmp_path, monkeypatch, model).result.best_us == 20.0
    assert words in answers_in(model.calls[1])[0]


def test_arguments_that_are_no_json_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AIMessage(
        "", invalid_tool_calls=[{"name": "run_kernel", "args": '{"source": "us', "id": "call_9",
                                 "error": None, "type": "invalid_tool_call"}],
    )  # fmt: skip
    model = ScriptedChatModel([broken, fenced(GOOD)])
    assert write(tmp_path, monkeypatch, model).result.best_us == 20.0
    assert "no JSON object" in answers_in(model.calls[1])[0]


def test_a_submitted_kernel_passes_the_same_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [calls(("compile_kernel", {"source": RACE})), submit, fenced(GOOD)]
    )
    ran = write(tmp_path, monkeypatch, model)
    assert ran.result.best_us == 20.0 and sorted(row.repairs for row in ran.evidence) == [0, 1]
    assert "without a barrier" in str(model.calls[2].messages[-1].content)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("SUBMIT: kernel-0123456789ab", "there is no"),
        ("I am done.", "holds no code"),
        (refusal(), "refused"),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Any, words: str
) -> None:
    model = ScriptedChatModel([calls(("compile_kernel", {"source": GOOD})), reply, fenced(GOOD)])
    assert write(tmp_path, monkeypatch, model).result.best_us == 20.0
    assert words in str(model.calls[2].messages[-1].content)


def test_declining_after_a_look_costs_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [calls(("search_knowledge", {"query": "latency"})), "NOT APPLICABLE: nothing is loaded."]
    )
    ran = write(tmp_path, monkeypatch, model)
    assert ran.evidence[0].outcome == "not_applicable"


@pytest.mark.parametrize("paid", [1, 2, 3])
def test_a_run_that_stopped_between_rounds_pays_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paid: int
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    model = ScriptedChatModel(
        [
            calls(("run_kernel", {"source": RACE})),
            calls(("profile_kernel", {"source": GOOD})),
            lambda messages: calls(("profile_kernel", {"source": last_id(messages)})),
            submit,
        ]
    )
    with pytest.raises(Capped):
        write(tmp_path, monkeypatch, model, budgets=Budgets(calls=paid))
    assert len(model.calls) == paid
    write_budgets(tmp_path / "run", Budgets(calls=50))
    result = resume(tmp_path / "run")
    assert result.best_us == 20.0 and len(model.calls) == 4
    ran = log.read_text().splitlines()
    assert len(ran) == len(set(ran)) + 2, "but for the confirmation, no stage ran twice"


def test_the_ledger_counts_every_round_with_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = write(tmp_path, monkeypatch, calls(("run_kernel", {"source": GOOD})), submit)
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        rows = store.ledger.rows()
    assert [row.role for row in rows] == ["kernel_writer"] * 2
    assert [json.loads(row.place) for row in rows] == [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert ran.result.tokens == sum(row.tokens_in + row.tokens_out for row in rows)


def test_the_built_in_writer_calls_no_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="--writer tools: the built-in"):
        run(tmp_path, monkeypatch, ScriptedChatModel([]), writer="tools")


@pytest.mark.parametrize(
    "place", ["kernel_writer.node.ToolRound", "kernel_writer.tool_rounds._tell"]
)
def test_a_process_that_ends_within_a_round_repeats_neither_call_nor_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """After the reply came, and after a tool measured: before either stands in a checkpoint."""
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    model = ScriptedChatModel([calls(("profile_kernel", {"source": GOOD})), submit])

    def killed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(f"kernelblaster.nodes.{place}", killed)
        with pytest.raises(BrokenPipeError):
            write(tmp_path, monkeypatch, model)
    assert len(model.calls) == 1
    result = resume(tmp_path / "run")
    assert result.best_us == 20.0 and len(model.calls) == 2
    ran = log.read_text().splitlines()
    assert len(ran) == len(set(ran)) + 2, "but for the confirmation, no stage ran twice"


def test_on_a_device_that_answers_elsewhere_a_tool_waits_for_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred_support.install(monkeypatch.setattr)
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    model = ScriptedChatModel([calls(("profile_kernel", {"source": GOOD})), submit])
    asked = request(
        tmp_path, device="deferred", gpu="H100", steps=1, iterations=1, rollouts=1,
        model=f"kernel_writer={CURRENT}", models=use(monkeypatch, model, "kernel_writer"),
        writer="tools",
    )  # fmt: skip
    result = finish(tmp_path / "run", asked)
    assert result.best_us == 20.0 and len(model.calls) == 2
    assert "20 us" in answers_in(model.calls[1])[0]
