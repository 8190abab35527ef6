"""A bench on the text device: what is counted, what is repeated, and what ends nothing else."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import graph_support
import pytest
from benches import HereWorker, done, planned

from kernelblaster.bench.crew import Died
from kernelblaster.bench.directory import (
    ended_path,
    read_ended,
    read_outcomes,
    read_suite,
    run_path,
)
from kernelblaster.bench.one_run import Unfinished, failed
from kernelblaster.bench.planning import lock_of
from kernelblaster.bench.records import PlannedRun, SuiteLock
from kernelblaster.bench.results import write_results
from kernelblaster.bench.running import Bench, chains_of
from kernelblaster.bench.variants import parse_variants
from kernelblaster.bench.worker import answer
from kernelblaster.graph.session import Session
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.suites.records import SuiteTasks
from kernelblaster.memory.run.directory import RunDirectory
from kernelblaster.nodes.records.plan import RunContext
from kernelblaster.tools.models.records import Budgets


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)
    graph_support.install_bench(monkeypatch.setattr)


def test_a_task_that_fails_counts_as_one_and_ends_no_other(tmp_path: Path) -> None:
    lock = planned(tmp_path / "bench", names=("one", "bad", "two"))
    told = done(tmp_path / "bench", lock)
    assert [kind for kind, *_ in told if kind != "event"] == ["begun", "ended"] * 6
    results = write_results(tmp_path / "bench", lock)
    assert (results.finished, results.planned) == (6, 6)
    whole, minimal = (each.summary for each in results.policies)
    assert (whole.runs, whole.valid, whole.failed) == (3, 2, {"failed": 1})
    assert whole.ratios.minimum == 1.0 and whole.evaluations == 8 and minimal.evaluations == 8
    assert "no Python" in results.reasons["kernelblaster/seed-0/bad"]
    said = (tmp_path / "bench" / "results.md").read_text()
    assert "| bad | 1.00x failed | 1.00x failed |" in said and "no Python" in said
    rows = (tmp_path / "bench" / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 6 and rows[0].startswith("task,policy,seed,outcome")
    stored = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert stored["numbers_sha256"] == results.numbers_sha256


def test_neither_the_number_at_a_time_nor_a_stop_changes_a_number(tmp_path: Path) -> None:
    found = []
    for name, workers in (("alone", 1), ("together", 3)):
        lock = planned(tmp_path / name, evaluations=3)
        done(tmp_path / name, lock, workers)
        found.append(write_results(tmp_path / name, lock).numbers_sha256)
    lock = planned(tmp_path / "stopped", evaluations=3)
    worker = HereWorker(tmp_path / "stopped", lock)
    seen: list[str] = []

    def told(kind: str, run: Any, said: Any) -> None:
        seen.append(kind)
        if seen.count("event") == 8:
            bench.stop()

    bench = Bench(tmp_path / "stopped", lock, [worker], told)
    asyncio.run(bench.run())
    assert "unfinished" in seen and bench.unfinished
    assert len(read_outcomes(tmp_path / "stopped", lock)) < len(lock.runs)
    done(tmp_path / "stopped", lock)
    found.append(write_results(tmp_path / "stopped", lock).numbers_sha256)
    assert len(set(found)) == 1


def test_tasks_are_done_whole_and_none_by_two_while_others_wait(tmp_path: Path) -> None:
    names = tuple("abcd")
    lock = planned(tmp_path / "bench", "minimal,best_of_n,zero_shot", names=names)
    begun: list[str] = []
    at_work: set[str] = set()

    class Slow(HereWorker):
        async def do(self, run: Any, watch: Any) -> Any:
            begun.append(run.task)
            assert run.task not in at_work
            at_work.add(run.task)
            await asyncio.sleep(0)
            at_work.remove(run.task)
            return failed(tmp_path / "bench", run, "it is not for this that it is here")

    crew = [Slow(tmp_path / "bench", lock) for _ in range(2)]
    asyncio.run(Bench(tmp_path / "bench", lock, crew, lambda *_: None).run())
    assert sorted(begun) == sorted(3 * names)
    assert set(begun[:6]) == {"a", "b"}, "stopped here, all are asked the same tasks"


def test_what_is_over_is_not_done_again_and_what_failed_only_when_asked(tmp_path: Path) -> None:
    lock = planned(tmp_path / "bench", "minimal", names=("one", "bad"))
    done(tmp_path / "bench", lock)
    assert done(tmp_path / "bench", lock) == []
    first = next(run for run in lock.runs if run.task == "one")
    ended_path(tmp_path / "bench", first).unlink()
    told = done(tmp_path / "bench", lock)
    assert [kind for kind, *_ in told] == ["begun", "ended"], "its result is there: no event"


def test_a_worker_that_dies_is_asked_once_more_and_then_the_run_failed(tmp_path: Path) -> None:
    lock = planned(tmp_path / "bench", "minimal")

    class Mortal(HereWorker):
        async def do(self, run: Any, watch: Any) -> Any:
            deaths.append(run.task)
            if run.task == "one" or deaths.count(run.task) == 1:
                raise Died("its process ended with -9")
            return await super().do(run, watch)

    deaths: list[str] = []
    directory = tmp_path / "bench"
    asyncio.run(Bench(directory, lock, [Mortal(directory, lock)], lambda *_: None).run())
    assert deaths == ["one", "one", "two", "two"]
    ends = {run.task: ended for run, ended in read_outcomes(directory, lock)}
    assert ends["one"].outcome.outcome == "failed" and "-9" in ends["one"].reason
    assert ends["two"].outcome.valid


def test_who_reads_what_others_learned_comes_after_them(tmp_path: Path) -> None:
    lock = planned(tmp_path / "bench", "kernelblaster,minimal", seeds=(0, 1))
    chains = [[run.place for run in chain] for chain in chains_of(lock)]
    assert ["kernelblaster/seed-0/one", "kernelblaster/seed-0/two"] in chains
    assert ["minimal/seed-0/one"] in chains and len(chains) == 2 + 4
    for memory in ("off", "seed", "frozen", "shuffled"):  # These add nothing for another.
        alone = planned(tmp_path / memory, f"kernelblaster[memory={memory}]")
        assert [len(chain) for chain in chains_of(alone)] == [1, 1]
    lonely = planned(tmp_path / "each", "kernelblaster", knowledge="each")
    assert [len(chain) for chain in chains_of(lonely)] == [1, 1]


def test_a_base_that_is_begun_with_is_copied_and_not_written(tmp_path: Path) -> None:
    lock = planned(tmp_path / "first", "kernelblaster", names=("one",))
    done(tmp_path / "first", lock)
    base = tmp_path / "first" / "knowledge" / "kernelblaster" / "seed-0"
    before = (base / "evidence.sqlite").read_bytes()
    lock = planned(tmp_path / "second", "kernelblaster", knowledge_from=str(base))
    base.rename(tmp_path / "away")
    done(tmp_path / "second", lock)  # It began with what was there when it began.
    (tmp_path / "away").rename(base)
    copy = tmp_path / "second" / "knowledge" / "kernelblaster" / "seed-0" / "evidence.sqlite"
    assert copy.is_file() and (base / "evidence.sqlite").read_bytes() == before


def test_a_task_that_was_changed_is_refused(tmp_path: Path) -> None:
    planned(tmp_path / "bench")
    (tmp_path / "bench" / "tasks" / "one.py").write_text("# another\n")
    with pytest.raises(UserError, match="has changed since the bench began"):
        read_suite(tmp_path / "bench")


def test_winners_are_read_by_those_who_share_a_base_and_by_nobody_else(tmp_path: Path) -> None:
    def began(name: str, variants: str, **options: Any) -> dict[str, list[bool]]:
        lock = planned(tmp_path / name, variants, evaluations=3, **options)
        done(tmp_path / name, lock)
        found: dict[str, list[bool]] = {}
        for run, ended in read_outcomes(tmp_path / name, lock):
            result = json.loads((tmp_path / name / ended.run / "result.json").read_text())
            found.setdefault(run.variant, []).append(result["start_us"] is not None)
        return found

    # The text device's tasks are one task under two names: the second is known after the first.
    assert began("alone", "kernelblaster", knowledge="each") == {"kernelblaster": [False, False]}
    told = began("shared", "kernelblaster,random")
    assert told == {"kernelblaster": [False, True], "random": [False, False]}
    lock = read_suite(tmp_path / "shared")
    assert list(write_results(tmp_path / "shared", lock).began) == ["kernelblaster/seed-0/two"]
    said = (tmp_path / "shared" / "results.md").read_text()
    assert "kernelblaster/seed-0/two: with the kernel found by run" in said
    base = tmp_path / "shared" / "knowledge" / "kernelblaster" / "seed-0"
    nobody = ("kernelblaster[memory=seed]", "random", "no_memory", "best_of_n")
    variants = ",".join(("kernelblaster", *nobody))
    told = began("copied", variants, names=("one",), knowledge_from=str(base))
    assert told == {"kernelblaster": [True], **{name: [False] for name in nobody}}


def test_runs_share_what_they_find_and_each_is_charged_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    policies = "random,best_of_n,minimal"

    def asked(name: str, **options: Any) -> tuple[list[str], str, SuiteLock]:
        log.write_text("")
        lock = planned(tmp_path / name, policies, names=("one",), evaluations=3, **options)
        done(tmp_path / name, lock)
        compiled = [each for each in log.read_text().splitlines() if each.startswith("compile")]
        return compiled, write_results(tmp_path / name, lock).numbers_sha256, lock

    fresh, numbers, lock = asked("fresh")
    assert lock.context.fresh and not (tmp_path / "fresh" / "stages").exists()
    monkeypatch.delenv("KERNELBLASTER_FRESH")
    shared, same, lock = asked("shared")
    assert not lock.context.fresh and same == numbers
    assert len(shared) == len(set(shared)) < len(fresh)
    for run, ended in read_outcomes(tmp_path / "shared", lock):
        result = json.loads((tmp_path / "shared" / ended.run / "result.json").read_text())
        first = run.variant == "random"
        assert (result["taken_over"] == 0) == first
        assert ended.outcome.device_seconds > 0 and ended.outcome.seconds > 0


def test_benches_whose_stages_are_one_folder_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    one_run_shared(tmp_path / "first", monkeypatch)
    assert log.read_text()
    log.write_text("")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "stages").symlink_to(tmp_path / "first" / "stages")
    one_run_shared(tmp_path / "second", monkeypatch)
    assert not [each for each in log.read_text().splitlines() if each.startswith("compile")]


def one_run_shared(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[SuiteLock, PlannedRun, Path]:
    """Return the lock, the one run and its directory of a bench that is over and shares stages."""
    monkeypatch.delenv("KERNELBLASTER_FRESH", raising=False)
    lock = planned(bench, "random", names=("one",), evaluations=3)
    done(bench, lock)
    (run,) = lock.runs
    return lock, run, run_path(bench, run)


def test_a_bench_that_was_moved_shares_what_it_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, run, place = one_run_shared(tmp_path / "bench", monkeypatch)
    ended_path(tmp_path / "bench", run).unlink()
    for left in (*place.glob("run.sqlite*"), *place.glob("result.*")):
        left.unlink()  # It is gone on with from its plan, with nothing evaluated.
    (tmp_path / "bench").rename(tmp_path / "moved")
    done(tmp_path / "moved", lock)
    assert not (tmp_path / "bench").exists()
    ((_, ended),) = read_outcomes(tmp_path / "moved", lock)
    result = json.loads((tmp_path / "moved" / ended.run / "result.json").read_text())
    assert result["taken_over"] > 0


def test_a_run_that_was_moved_out_of_its_bench_shares_with_it_and_with_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, place = one_run_shared(tmp_path / "bench", monkeypatch)
    (place / "result.json").unlink()
    moved = tmp_path / "a" / "b" / "moved"
    moved.parent.mkdir(parents=True)
    place.rename(moved)
    with closing(Session.open(moved)) as session:
        stages = (moved / session.plan.shared).resolve()
        assert stages == tmp_path / "bench" / "stages"
    (tmp_path / "bench" / "stages").rename(tmp_path / "elsewhere")
    moved.rename(tmp_path / "again")
    with closing(Session.open(tmp_path / "again")) as session:
        assert session.plan.shared == ""


def test_a_cap_on_working_time_is_each_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELBLASTER_FRESH")
    common = RunContext(device="simulated", gpu="H100", budgets=Budgets(wall_seconds=60.0))
    lock = lock_of(
        SuiteTasks(name="texts", origin="here", tasks=()), common,
        parse_variants("minimal", common), (0,), AS_WRITTEN, knowledge="each",
    )  # fmt: skip
    assert lock.context.fresh


def test_a_run_that_another_process_is_at_is_no_failed_one(tmp_path: Path) -> None:
    lock = planned(tmp_path / "bench", "minimal", names=("one",))
    (run,) = lock.runs
    done(tmp_path / "bench", lock)
    came_to = read_ended(tmp_path / "bench", run)
    ended_path(tmp_path / "bench", run).unlink()
    worker = HereWorker(tmp_path / "bench", lock)
    with closing(RunDirectory.hold(run_path(tmp_path / "bench", run))):
        with pytest.raises(Unfinished, match="in use by another process"):
            asyncio.run(worker.do(run, lambda event: None))
    assert read_ended(tmp_path / "bench", run) is None
    assert asyncio.run(worker.do(run, lambda event: None)) == came_to


def test_a_worker_whose_parent_is_gone_ends_before_its_run_can_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        answer(Gone(), {"event": {}})
