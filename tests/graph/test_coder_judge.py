"""Policies by rounds with models: what each agent sees and says, and what comes of it."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from graph_support import TextRewrite
from langgraph.checkpoint.memory import InMemorySaver
from model_role_support import Ran, run
from run_child import start_run
from scripted_chat_model import CURRENT, ScriptedChatModel, use

from kernelblaster import RunContext
from kernelblaster.graph.checkpoints import checkpoint_serializer
from kernelblaster.graph.policies import build_policy_graph
from kernelblaster.graph.session import Capped, Session
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.kernels import KernelPoint
from kernelblaster.nodes.records.rounds import Candidate
from kernelblaster.nodes.run.beginning.begin import stored_plan
from kernelblaster.tools.models.budgets import write_budgets
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.models.records import Budgets

COUNTER = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
"""The only one of the subset that the text device counts."""


def kernel(us: float, *more: str) -> str:
    return fenced("\n".join([f"us: {us}", "// launch()", *more, ""]))


def advice(method: str) -> dict[str, Any]:
    return {
        "bottleneck": "dram", "evidence": [COUNTER], "method": method, "plan": f"the {method} way",
    }  # fmt: skip


FIX = {"diagnosis": "line 3 is wrong", "hint": "drop line 3"}


def judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, coder: list[Any], judge: list[Any], **more: Any
) -> tuple[Ran, ScriptedChatModel]:
    model = ScriptedChatModel(by_role={"coder": coder, "judge": judge})
    settings = {"policy": "coder_judge", "rounds": len(coder)} | more
    return run(folder, monkeypatch, model, "coder", "judge", **settings), model


def test_each_mode_reads_its_own_candidate_and_the_best_correct_kernel_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder = [
        kernel(20, "outcome: wrong_answer"), kernel(80), kernel(50), kernel(65),
        kernel(10, "outcome: race"),
    ]  # fmt: skip
    ran, model = judged(
        tmp_path, monkeypatch, coder, [FIX, *map(advice, ("tile", "unroll", "prefetch"))]
    )
    rows = [(each.technique, str(each.outcome), each.microseconds_before) for each in ran.steps]
    assert rows == [
        ("first_kernel", "wrong_answer", 100.0),
        ("correction", "passed", 100.0),
        ("tile", "passed", 80.0),
        ("unroll", "passed", 50.0),
        ("prefetch", "race", 65.0),
    ]  # fmt: skip
    assert ran.result.best_us == 50.0 and ran.result.techniques == ("correction", "tile")
    assert not ran.evidence and not ran.lessons  # Nothing is learned.
    assert {(step.state, step.choice, step.source) for step in ran.result.steps[1:]} == {
        (CURRENT, CURRENT, CURRENT)
    }
    first, *changes = (call.prompt for call in model.calls_of("coder"))
    assert "An example of another task" in first and "The file now" not in first
    assert "line 3 is wrong" in changes[0] and "Its results differ from PyTorch's." in changes[0]
    assert "Method: tile" in changes[1]
    correction, *optimisations = (call.prompt for call in model.calls_of("judge"))
    assert "What the program found" in correction and COUNTER not in correction
    for prompt in optimisations:  # The time that is shown is the shown file's.
        (us,) = re.findall(r"us: ([\d.]+)$", prompt, re.MULTILINE)
        assert f"launch() takes {us} us" in prompt and f"- {COUNTER}: {us}" in prompt
        assert "Which the simulated GPU does not count" in prompt


def test_prompts_hold_the_last_round_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder = [kernel(90 - 10 * number, f"mark_{number}") for number in range(4)]
    names = ["method_0", "method_1", "method_2"]
    _, model = judged(tmp_path, monkeypatch, coder, list(map(advice, names)))
    for number, call in enumerate(model.calls_of("coder")):
        assert re.findall(r"mark_\d", call.prompt) == [f"mark_{number - 1}"] * (number > 0)
        assert {*re.findall(r"method_\d", call.prompt)} == {*names[max(number - 1, 0) : number]}
    for number, call in enumerate(model.calls_of("judge")):
        assert re.findall(r"mark_\d", call.prompt) == [f"mark_{number}"]
        assert {*re.findall(r"method_\d", call.prompt)} == {*names[max(number - 1, 0) : number]}


@pytest.mark.parametrize("roles", [(), ("coder", "judge")])
def test_without_counters_the_judge_goes_by_code_and_time(
    roles: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = advice("tile") | {"evidence": []}
    model = ScriptedChatModel(by_role={"coder": [kernel(80), kernel(50)], "judge": [blind]})
    ran = run(
        tmp_path, monkeypatch, model, *roles, policy="coder_judge", rounds=2, counters=False
    )
    assert [str(step.outcome) for step in ran.steps] == ["passed", "passed"]
    for call in model.calls_of("judge"):
        assert "Nothing was counted" in call.prompt and COUNTER not in call.prompt


def test_what_cannot_be_read_is_a_lost_round_and_the_built_in_judge_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented = advice("tile") | {"evidence": ["no_such_counter"]}
    coder = [kernel(80), *["no code at all"] * 3, "NOT APPLICABLE: it is tiled", kernel(40)]
    ran, model = judged(
        tmp_path, monkeypatch, coder, [*[invented] * 3, advice("tile"), advice("unroll")], rounds=4
    )
    assert [str(step.outcome) for step in ran.steps] == [
        "passed", "no_answer", "not_applicable", "passed"
    ]  # fmt: skip
    assert ran.steps[1].choice_author.startswith("builtin (import:")
    assert "no_such_counter is none of the counters shown" in model.calls_of("judge")[1].prompt
    assert ran.result.best_us == 40.0 and ran.steps[3].microseconds_before == 80.0
    assert "Nothing was written: it is tiled" in model.calls_of("judge")[-1].prompt


def test_optimisation_only_goes_on_from_what_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder = [kernel(80), kernel(5, "outcome: race"), kernel(60)]
    ran, model = judged(
        tmp_path, monkeypatch, coder, [advice("tile"), advice("unroll")], policy="optimisation_only"
    )
    assert [step.technique for step in ran.steps] == ["first_kernel", "tile", "unroll"]
    for call in (model.calls_of("judge")[1], model.calls_of("coder")[2]):
        assert "us: 80" in call.prompt and "outcome: race" not in call.prompt


def test_correction_only_ends_with_the_first_kernel_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder = [kernel(5, "outcome: compile_error"), kernel(60), kernel(50)]
    ran, _ = judged(tmp_path, monkeypatch, coder, [FIX], policy="correction_only")
    assert [step.technique for step in ran.steps] == ["first_kernel", "correction"]
    assert ran.result.best_us == 60.0


def test_a_person_s_kernel_is_judged_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start.cu"
    start.write_text("us: 77\n// launch()\n")
    ran, model = judged(
        tmp_path, monkeypatch, [kernel(50)], [advice("tile")], start=str(start)
    )
    assert [call.role for call in model.calls] == ["judge", "coder"]
    assert ran.result.initial_us == 77.0 and ran.steps[0].technique == "tile"


def test_the_minimal_agent_sees_code_and_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder = [kernel(80), kernel(70, "outcome: race"), kernel(60)]
    model = ScriptedChatModel(by_role={"coder": coder})
    ran = run(tmp_path, monkeypatch, model, "coder", policy="minimal", rounds=3)
    assert [step.technique for step in ran.steps] == ["first_kernel", "rewrite", "rewrite"]
    _, faster, mend = (call.prompt for call in model.calls)
    assert "us: 80" in faster and "Where its time goes" in faster and "Make it faster" in faster
    assert "us: 70" in mend and "What is wrong with it" in mend and "us: 80" not in mend


def test_samples_are_independent_and_the_fastest_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(by_role={"coder": [kernel(us) for us in (80, 40, 60)]})
    ran = run(tmp_path, monkeypatch, model, "coder", policy="best_of_n", rounds=3)
    assert len({call.prompt for call in model.calls}) == 1 and len(model.calls) == 3
    assert {step.microseconds_before for step in ran.steps} == {100.0}
    assert ran.result.best_us == 40.0 and ran.result.techniques == ("first_kernel",)


def test_the_built_in_coder_mends_by_another_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Choosy(TextRewrite):
        def apply(
            self, source: str, task: Any, parameters: Any = None, kernels: Any = ()
        ) -> Any:
            made = super().apply(source, task, parameters)
            if parameters.get("block") == 256 and hasattr(made, "source"):
                return made.model_copy(update={"source": made.source + "outcome: race\n"})
            return made

    ran = run(
        tmp_path, monkeypatch, ScriptedChatModel(), policy="coder_judge", rounds=3,
        rewrites=(Choosy("tune_block_size", 0.5, parameters={"block": (256, 128)}),),
    )  # fmt: skip
    assert [(step.technique, step.parameters, str(step.outcome)) for step in ran.steps] == [
        ("first_kernel", {}, "passed"),
        ("tune_block_size", {"block": 256}, "race"),
        ("correction", {"block": 128}, "passed"),
    ]
    assert ran.result.best_us == 50.0


def test_a_measurement_of_another_source_is_refused() -> None:
    point = KernelPoint(
        source_sha256="a", evaluation_key="k", microseconds=1, interval=(1, 1),
        provenance="simulated", bottleneck="dram",
    )  # fmt: skip
    with pytest.raises(ValueError, match="of one source"):
        Candidate(
            technique="tile", source_sha256="b", author="m", evaluation_key="k", point=point
        )


def test_a_cap_stops_between_rounds_and_the_resumed_run_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    coder, methods = [kernel(80), kernel(50), kernel(40)], ["tile", "unroll"]
    results, prompts = [], []
    for name, caps in (("whole", {}), ("capped", {"calls": 2})):
        model = ScriptedChatModel(by_role={"coder": coder, "judge": list(map(advice, methods))})
        plan = use(monkeypatch, model, "coder", "judge")
        session = Asked.of(
            task="text.py", knowledge=str(tmp_path / "kb"), policy="coder_judge", rounds=3,
            model=f"coder={CURRENT},judge={CURRENT}", models=plan, budgets=Budgets(**caps),
        ).session(tmp_path / name)  # fmt: skip
        if caps:
            with pytest.raises(Capped):
                asyncio.run(session.run())
            session.close()
            (tmp_path / name).rename(tmp_path / "moved")  # Then it goes on by its journal.
            write_budgets(tmp_path / "moved", Budgets())
            session = Session.open(tmp_path / "moved")
        results.append(asyncio.run(session.run()))
        session.close()
        prompts.append([call.prompt for call in model.calls])
    whole, capped = results
    assert prompts[0] == prompts[1] and len(prompts[0]) == 5  # Nothing is paid for twice.
    same = {"run", "best_source", "money"}
    assert whole.model_dump(exclude=same) == capped.model_dump(exclude=same)


def test_a_killed_run_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    asked = Asked.of(
        task="text.py", knowledge=str(tmp_path / "kb"), policy="coder_judge", rounds=6
    )
    log = tmp_path / "log"
    process = start_run(
        tmp_path / "killed", asked, TEXT_DEVICE_LOG=str(log), TEXT_DEVICE_SECONDS="0.05"
    )
    while not (log.exists() and len(log.read_text().splitlines()) >= 8):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stories = []
    for session in (Session.open(tmp_path / "killed"), asked.session(tmp_path / "whole")):
        asyncio.run(session.run())
        session.close()
        with RunStore(session.directory / "run.sqlite") as store:
            stories.append([
                step.model_dump(exclude={"run"}) for step in store.replay.steps()
            ])  # fmt: skip
    assert stories[0] == stories[1] and len(stories[0]) == 6


async def test_an_edited_past_is_a_fork_with_the_common_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    saver = InMemorySaver(serde=checkpoint_serializer())
    graph = build_policy_graph("coder_judge").compile(checkpointer=saver)
    thread: Any = {"configurable": {"thread_id": "one"}}
    (tmp_path / "text.py").write_text("")
    context = RunContext(rounds=3, knowledge=str(tmp_path / "kb"))
    first = await graph.ainvoke({"task": "text.py"}, thread, context=context)
    async for state in graph.aget_state_history(thread):
        if "judge" in state.next and state.values["round"] == 2:
            past = await graph.aupdate_state(state.config, {"plan": {"seed": 5}})
    again = await graph.ainvoke(None, past)
    plans = [stored_plan(Path(each["result"].run)) for each in (first, again)]
    assert [plan.policy for plan in plans] == ["coder_judge"] * 2  # The graph stands for it.
    assert plans[1].forked_from == plans[0].run and len(again["result"].techniques) >= 1
