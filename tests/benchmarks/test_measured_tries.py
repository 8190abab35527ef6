"""Tries that GPUs measured: out of a bench's directory, into lines, and back; and what they say."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import graph_support
import pytest
from benches import done, planned
from places import ROOT
from scripts import import_script

from kernelblaster.bench.directory import run_path
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.run.run_store import RunStore

LEARNING = ROOT / "benchmarks" / "learning"
OF_A_KERNEL = {
    "kernel", "task", "op_class", "dtype", "gpu", "us", "bound_us", "launched", "bytes",
    "operations", "applied", "launches", "device",
}  # fmt: skip
OF_A_TRY = {
    "of", "seed", "technique", "setting", "launch", "writer", "outcome", "log_gain", "child",
    "error", "measured",
}  # fmt: skip
PARENT, CHILD = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    return import_script(LEARNING / "recorded_tries.py")


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    import_script(LEARNING / "try_lines.py")
    return import_script(LEARNING / "tries_of_runs.py")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench of two policies; of its three tasks one cannot be read, and one run was not made."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        graph_support.install(patch.setattr)
        graph_support.install_bench(patch.setattr)
        lock = planned(folder, "kernelblaster,coder_judge", ("one", "bad", "two"), evaluations=5)
        done(folder, lock)
    (gone,) = (run for run in lock.runs if (run.folder, run.task) == ("coder_judge", "two"))
    shutil.rmtree(run_path(folder, gone))
    return folder


def steps_of(bench: Path) -> list[Step]:
    """Return the steps of all runs that are there."""
    found = []
    for path in sorted(bench.glob("runs/*/*/*/run.sqlite")):
        with RunStore(path, copied=True) as store:
            found += store.replay.steps()
    return found


def test_a_bench_is_written_and_read_as_the_tries_of_its_runs(
    writer: ModuleType, reader: ModuleType, bench: Path, tmp_path: Path
) -> None:
    files = writer.tries_of_bench(bench)
    assert sorted(files) == ["H100-one.jsonl", "H100-two.jsonl"]
    for name, lines in files.items():
        (tmp_path / name).write_text(writer.as_text(lines))
    tries = reader.recorded(sorted(tmp_path.glob("*.jsonl")))
    made = [each for each in steps_of(bench) if each.parent_sha256 != each.child_sha256]
    assert {each.technique for each in made} == {each.action.technique for each in tries}
    assert len(tries) == len(
        {(each.run.split("-")[0], each.parent_sha256, each.child_sha256) for each in made}
    )
    assert "first_kernel" not in {each.action.technique for each in tries}
    by_child = {(each.parent_sha256[:10], each.technique): each for each in made}
    for each in tries:
        step = by_child[each.kernel, each.action.technique]
        assert each.outcome is step.outcome and each.action.launch == "k"
        assert each.log_gain == (step.log_gain and pytest.approx(step.log_gain, abs=1e-5))
        assert each.situation.microseconds == pytest.approx(step.microseconds_before)
    assert any(each.log_gain is None for each in tries), "failures are tries"
    lineages = [line["applied"] for each in files.values() for line in each if "launches" in line]
    assert [] in lineages and any(len(of) > 1 for of in lineages)


def test_reading_a_bench_changes_nothing_but_locks_of_it(writer: ModuleType, bench: Path) -> None:
    def files() -> dict[Path, bytes]:
        held = (each for each in bench.rglob("*") if each.is_file())
        return {each: each.read_bytes() for each in held if not each.name.endswith("-shm")}

    before = files()
    writer.tries_of_bench(bench)
    assert files() == before
    with pytest.raises(UserError, match="is no bench"):
        writer.tries_of_bench(bench / "runs")


def tried(writer: ModuleType, gain: float | None, error: float = 0.002, **changes: Any) -> Any:
    """Return a step as one run has it; without a gain it failed."""
    step = Step(
        run="r", iteration=0, rollout=0, step=0, technique="unroll_loop", expected_log_gain=0.0,
        outcome=Outcome.WRONG_ANSWER if gain is None else Outcome.PASSED, log_gain=gain,
        parent_sha256=PARENT, child_sha256=CHILD, author="builtin", state_id="s",
        microseconds_before=1.0, bottleneck_before="dram",
    )  # fmt: skip
    step = step.model_copy(update=changes)
    return writer.Tried(0, step, (step.technique, {"factor": 4}, "k"), error)


def line_of(writer: ModuleType, *made: tuple[int, Any]) -> dict[str, Any]:
    """Return the line of a try that runs, by number, made."""
    line: dict[str, Any] = writer._try([each for _, each in made], writer._once(made))
    return line


def test_what_several_runs_measured_is_one_try_at_the_median(writer: ModuleType) -> None:
    gains = {0: 0.3, 1: 0.1, 2: 0.2}
    line = line_of(writer, *((run, tried(writer, gain)) for run, gain in gains.items()))
    assert (line["log_gain"], line["measured"], line["error"]) == (0.2, [0.3, 0.1, 0.2], 0.002)
    again = line_of(writer, (0, tried(writer, 0.3)), (0, tried(writer, 0.3)))
    assert again["log_gain"] == 0.3 and "measured" not in again, "a copy is no measurement"


def test_a_verdict_in_one_run_stands(writer: ModuleType) -> None:
    line = line_of(writer, (0, tried(writer, 0.3)), (1, tried(writer, None)))
    assert line["outcome"] == "wrong_answer" and line["log_gain"] is None
    assert not {"error", "measured"} & line.keys()


def test_what_says_nothing_of_a_technique_is_no_try(writer: ModuleType) -> None:
    says = writer._says_something
    assert says(tried(writer, 0.1).step) and says(tried(writer, None).step)
    for outcome in (Outcome.NO_ANSWER, Outcome.NOT_APPLICABLE, Outcome.PROFILER_UNAVAILABLE):
        assert not says(tried(writer, None, outcome=outcome).step)
    assert not says(tried(writer, 0.0, child_sha256=PARENT).step)


def test_measured_tries_hold_names_and_numbers_alone(reader: ModuleType) -> None:
    files = sorted(reader.MEASURED.glob("*.jsonl"))
    assert files and sum(each.stat().st_size for each in files) < 300_000
    for file in files:
        text = file.read_text()
        assert not set("/\\\n;(#") & set(text.replace("\n", "")), "no path and no source"
        for line in map(json.loads, text.splitlines()):
            assert line.keys() <= (OF_A_KERNEL if "launches" in line else OF_A_TRY)
    tries = reader.measured()
    assert not any(each.situation.simulated for each in tries)
    assert all(each.situation.simulated for each in reader.recorded())
    actions = {(each.kernel, str(each.action)) for each in tries}
    assert len(actions) == len(tries) > 200


def test_simulated_tries_order_measured_ones_better_than_the_seed(reader: ModuleType) -> None:
    scorer = import_script(LEARNING / "score_expectations.py")
    measured = import_script(LEARNING / "score_measured.py")
    tries, simulated = reader.measured(), reader.recorded()
    alone = measured.knowing(scorer.Regression(), simulated, alone=True)([], tries)
    seed = scorer.by_seed([], tries)
    more, low, high = measured.difference(tries, alone, seed)
    assert 0.1 < more and low < more < high
    assert measured.difference(tries, seed, seed) == (0.0, 0.0, 0.0)
    right = [each for of in scorer.ordered(tries, alone).values() for each in of]
    assert statistics.fmean(right) > 0.7
