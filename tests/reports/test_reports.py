"""Reports of runs on the text device: what they say, of finished and unfinished runs, to whom."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import graph_support
import pytest
from text_runs import run as run_text

from kernelblaster.cli import app as cli
from kernelblaster.cli import reports as commands
from kernelblaster.harness.bound.speed_of_light import SpeedOfLight
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory import database
from kernelblaster.memory.run.directory import RunDirectory
from kernelblaster.memory.run.ledger import RoleTotals
from kernelblaster.nodes.records.accounts import StepAccount
from kernelblaster.nodes.records.gradient import ParameterUpdate, WrittenLesson
from kernelblaster.nodes.records.result import ShapeCheck
from kernelblaster.reports import run_page
from kernelblaster.reports.comparison import compare_runs
from kernelblaster.reports.csv_tables import steps_csv
from kernelblaster.reports.markdown import run_markdown
from kernelblaster.reports.plots import step_id
from kernelblaster.reports.reading import RunAccount, place_of, read_run
from kernelblaster.reports.run_page import run_html
from kernelblaster.reports.runs_page import runs_html
from kernelblaster.reports.watching import Watcher

HOSTILE = "</script></style></pre><script>window.hacked = 1</script><img src=x onerror=hacked=1>|`*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where two finished runs lie: `run`, and `again`, which began with what the first learned."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        graph_support.install(patch.setattr)
        run_text(folder, "run")
        run_text(folder, "again", seed=1, steps=2)
        yield folder


@pytest.fixture(scope="module")
def finished(folder: Path) -> RunAccount:
    return read_run(folder / "run")


@pytest.fixture(scope="module")
def again(folder: Path) -> RunAccount:
    return read_run(folder / "again")


def counted(run: RunAccount) -> RunAccount:
    """Return a run with the counters of a real profile, and texts that would break out."""
    evaluations = {}
    for name, each in run.evaluations.items():
        if each.profile is not None:
            launch = each.profile.launches[0]
            metrics = {
                "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1e9,
                "dram__bytes_read.sum": 1e8, "dram__bytes_write.sum": 1e8,
            }  # fmt: skip
            changed = launch.model_copy(update={"metrics": metrics, "kernel": HOSTILE})
            profile = each.profile.model_copy(
                update={"launches": (changed, changed), "gpu": "H100"}
            )
            each = each.model_copy(update={"profile": profile})
        evaluations[name] = each
    lesson = WrittenLesson(
        id="1", kind="observation", state_name=HOSTILE, technique=HOSTILE, text=HOSTILE
    )
    update = ParameterUpdate(iteration=0, lessons=(lesson,), author=HOSTILE)
    shapes = (
        ShapeCheck(dimensions={HOSTILE: 3}, outcome=Outcome.RACE, reason=HOSTILE),
        ShapeCheck(dimensions={"N": 3}, outcome=Outcome.PASSED, microseconds=2.0, speedup=1.5),
    )
    assert run.summary is not None and run.result is not None
    return dataclasses.replace(
        run,
        result=run.result.model_copy(update={"shapes": shapes, "notes": (HOSTILE,)}),
        summary=run.summary.model_copy(update={"name": HOSTILE}),
        evaluations=evaluations,
        sources={name: f"{HOSTILE}\n{text}" for name, text in run.sources.items()},
        steps=tuple(
            step.model_copy(update={"technique": HOSTILE, "parameters": {HOSTILE: HOSTILE},
                                    "author": HOSTILE, "reason": HOSTILE})
            for step in run.steps
        ),
        iterations=(dataclasses.replace(run.iterations[0], update=update),),
        spending=(
            RoleTotals(role=HOSTILE, model=HOSTILE, calls=2, malformed=0, failed=0, unanswered=0,
                       reused=0, tokens_in=100, tokens_cached=0, tokens_out=20, money=0.5),
        ),
        moments=tuple(dataclasses.replace(each, tokens=each.evaluations * 100)
                      for each in run.moments),
    )  # fmt: skip


class Outline(HTMLParser):
    """The elements of a page, and whether each is closed."""

    VOID = {"meta", "link", "br", "input", "img"}

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def test_a_run_is_read_whole_and_changes_nothing(folder: Path, finished: RunAccount) -> None:
    assert finished.status == "improved" and finished.initial is not None
    assert finished.gain == pytest.approx(100.0 / finished.best[1])  # type: ignore[index]
    assert set(finished.accounts) == {place_of(step) for step in finished.steps}
    said = next(iter(finished.accounts.values()))
    assert [each.role for each in said.said][0] == "state_extractor" and said.proposals
    assert {attempt.outcome for each in finished.accounts.values() for attempt in each.attempts}
    assert finished.knowledge_at == 0 and len(finished.iterations) == 2
    kept = [path for path in (folder / "run").iterdir() if not path.name.endswith("-shm")]
    before = [path.stat().st_mtime_ns for path in kept]
    read_run(folder / "run")
    assert before == [path.stat().st_mtime_ns for path in kept]


def test_a_run_is_read_where_nothing_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def without_a_file_beside(path: str, **how: Any) -> sqlite3.Connection:
        """Open as sqlite does where it cannot make the file that readers of its log share."""
        if path.startswith("file:") and "immutable" not in path:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, **how)

    monkeypatch.setattr(database.sqlite3, "connect", without_a_file_beside)
    with pytest.raises(UserError, match="unable to open"):
        read_run(folder / "run", whole=False)  # It could be written: something else is wrong.
    monkeypatch.setattr(database.os, "access", lambda path, how: False)
    assert read_run(folder / "run", whole=False).status == "improved"


def test_a_page_needs_no_network_and_escapes_what_others_wrote(finished: RunAccount) -> None:
    page = run_html(counted(finished))
    assert "<script>window" not in page and "<img src=x" not in page
    outline = Outline(page)
    assert not outline.open and "At shapes that the search never saw" in page
    scripts = [attributes for tag, attributes in outline.seen if tag == "script"]
    kinds = [each.get("type") for each in scripts]
    assert kinds == ["application/json", "text/plain", "text/plain", None]
    links = [each.get(name) for _, each in outline.seen for name in ("src", "href")]
    assert [link for link in links if link and not link.startswith(("#", "data:"))] == []
    ids = [attributes["id"] for _, attributes in outline.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert outline.headings[0] == 1 and all(
        later - earlier <= 1 for earlier, later in zip(outline.headings, outline.headings[1:],
                                                       strict=False)
    )  # fmt: skip


def test_every_step_tells_why_what_and_who(finished: RunAccount) -> None:
    page = run_html(finished)
    for step in finished.steps:
        number = "-".join(str(part + 1) for part in place_of(step))
        block = page.split(f'id="step-{number}"')[1].split("</details>\n<details class=")[0]
        assert step.technique in block and "state extractor" in block
        if step.child_sha256:
            assert "<ins>" in block


@pytest.mark.parametrize("policy", ["coder_judge", "best_of_n"])
def test_a_run_of_another_policy_has_a_report(folder: Path, policy: str) -> None:
    run_text(folder, policy, policy=policy, rounds=2)
    account = read_run(folder / policy)
    assert account.steps and account.plan.policy == policy
    assert [said.role for said in account.accounts[0, 0, 0].said] == ["judge", "coder"]
    page = run_html(account)
    assert "Rounds" in page and "<ins>" in page
    assert f"| policy | {policy.replace('_', chr(92) + '_')} |" in run_markdown(account)


def test_a_run_that_has_not_ended_has_a_report(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "part")
    (run / "result.json").unlink()
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("DELETE FROM journal WHERE node NOT IN ('load_task', 'profile_baseline')")
    part = read_run(run)
    assert part.status == "unfinished" and part.gain and part.gain > 1
    page = run_html(part)
    assert "measured once and not confirmed" in page and f"resume {run}" in page
    for table in ("journal", "steps", "evaluations"):
        with sqlite3.connect(run / "run.sqlite") as database:
            database.execute(f"DELETE FROM {table}")
    assert "Nothing was measured yet" in run_html(read_run(run))
    (run / "run.sqlite").unlink()
    assert "Nothing was measured yet" in run_html(read_run(run))


def test_a_first_kernel_that_fails_is_told(folder: Path) -> None:
    start = folder / "wrong.cu"
    start.write_text("us: 5.0\noutcome: wrong_answer\n")
    with pytest.raises(Exception, match="wrong"):
        run_text(folder, "failed", start=str(start))
    failed = read_run(folder / "failed")
    page = run_html(failed)
    assert "did not pass" in page and "the text says wrong_answer" in page
    assert "first kernel" in run_markdown(failed)


def test_markdown_and_csv_hold_every_step(finished: RunAccount) -> None:
    rows = list(csv.DictReader(io.StringIO(steps_csv([finished]))))
    assert [row["technique"] for row in rows] == [step.technique for step in finished.steps]
    best = min(float(row["microseconds_after"]) for row in rows if row["microseconds_after"])
    assert best == min(each.microseconds_after for each in finished.steps
                       if each.microseconds_after)  # fmt: skip
    assert run_markdown(finished).count("\n| 1.") >= 3
    hostile = counted(finished)
    assert "| 2 µs | 1.50× |" in run_markdown(hostile)
    assert "<" not in run_markdown(hostile).replace("&lt;", "")
    text = dataclasses.replace(
        hostile, steps=(hostile.steps[0].model_copy(update={"technique": "=1+1"}),)
    )
    assert next(csv.DictReader(io.StringIO(steps_csv([text]))))["technique"] == "'=1+1"


def test_two_runs_are_set_beside_each_other(finished: RunAccount, again: RunAccount) -> None:
    found = compare_runs(finished, again)
    assert found.ratio == pytest.approx(finished.best[1] / again.best[1])  # type: ignore[index]
    assert found.ratio_interval is not None  # As far as simulated times are told apart.
    assert found.ratio_interval[0] < found.ratio < found.ratio_interval[1]
    assert {side.name for side in found.settings} == {"seed", "steps"}
    assert len(found.paths) == max(len(finished.result.path), len(again.result.path))  # type: ignore[union-attr]
    wide = [
        dataclasses.replace(run, result=run.result.model_copy(update={"gain_ci": (low, high)}))  # type: ignore[union-attr]
        for run, low, high in ((finished, 1.0, 4.0), (again, 1.0, 1.0))
    ]
    interval = compare_runs(*wide).ratio_interval
    assert interval == pytest.approx((found.ratio / 2, found.ratio * 2))
    assert "as far as was measured" in compare_runs(*wide).sentence
    assert finished.initial is not None
    measured = finished.initial.model_copy(update={"provenance": Provenance.EVENTS})
    assert compare_runs(dataclasses.replace(finished, initial=measured), again).ratio is None


def test_several_runs_are_told_together(finished: RunAccount, again: RunAccount) -> None:
    page = runs_html([finished, again])
    assert "2 runs of 1 task" in page and "done both ways" in page
    for name in ("learning", "breadth", "depth", "techniques-0", "states-0", "transitions-0"):
        assert f'data-figure="{name}"' in page
    assert not Outline(page).open and 'data-figure="tokens"' not in page
    page = runs_html([counted(finished)])
    assert 'data-figure="tokens"' in page and "<script>window" not in page


def test_the_roofline_takes_the_tasks_operations_where_none_were_counted(
    finished: RunAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = counted(finished)
    run = dataclasses.replace(run, plan=run.plan.model_copy(update={"gpu": "H100"}))
    assert "Operations (FP32, as counted)" in run_html(run)
    evaluations = {}
    for name, each in run.evaluations.items():
        if each.profile is not None:
            launches = tuple(
                launch.model_copy(update={"metrics": {
                    key: value for key, value in launch.metrics.items() if "dram" in key}})
                for launch in each.profile.launches
            )  # fmt: skip
            profile = each.profile.model_copy(update={"launches": launches})
            each = each.model_copy(update={"profile": profile})
        evaluations[name] = each
    uncounted = dataclasses.replace(run, evaluations=evaluations)
    assert 'data-figure="roofline"' not in run_html(uncounted)  # Of the text task nothing is known.
    bound = SpeedOfLight(
        gpu="H100", bytes_read=1, bytes_written=1, operations={"element": 10**9}, source="",
        memory_us=1.0, fp32_us=1.0, tensor_us=1.0, defined_us=1.0,
    )  # fmt: skip
    monkeypatch.setattr(run_page, "speed_of_light", lambda task, gpu: bound)
    assert "Operations (as the task defines them)" in run_html(uncounted)


def test_a_run_is_watched_from_its_directory(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "watched")
    with sqlite3.connect(run / "run.sqlite") as database:
        steps = database.execute("SELECT * FROM steps").fetchall()
        database.execute("DELETE FROM steps WHERE iteration = 1")
        database.execute("DELETE FROM journal WHERE place NOT IN ('load_task', "
                         "'profile_baseline 0 0')")  # fmt: skip
    watcher = Watcher(run)
    _, first = watcher.look()
    kinds = [event["event"] for event in first]
    assert kinds[:2] == ["task", "baseline"] and set(kinds[2:]) == {"step"}
    assert not watcher.changed()
    with sqlite3.connect(run / "run.sqlite") as database:
        database.executemany(
            f"INSERT OR IGNORE INTO steps VALUES ({', '.join('?' * len(steps[0]))})", steps
        )
    assert watcher.changed()
    _, later = watcher.look()
    assert {event["event"] for event in later} == {"step"}
    assert len(first) - 2 + len(later) == len(steps)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Any:
    monkeypatch.setattr(sys, "argv", ["kernelblaster", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code


def test_the_commands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run, again = folder / "run", folder / "again"
    files = {kind: tmp_path / f"report.{kind}" for kind in ("html", "md", "csv")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", path)]
    assert call(monkeypatch, "report", run, *options) == 0
    assert all(path.stat().st_size > 1000 for path in files.values())
    assert call(monkeypatch, "report", run) == 0
    assert "Path of the winner" in capsys.readouterr().out
    assert call(monkeypatch, "compare", run, again, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ratio"]
    assert call(monkeypatch, "compare", run, again) == 0
    assert "settings that differ" in capsys.readouterr().out
    assert call(monkeypatch, "watch", run) == 0
    assert "policy evaluation" in capsys.readouterr().out
    assert call(monkeypatch, "report", tmp_path, "--html", tmp_path / "x.html") == 2
    assert "is no run directory" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_who_watches_may_leave(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = shutil.copytree(folder / "run", tmp_path / "held")
    (run / "result.json").unlink()
    held = RunDirectory.hold(run)

    def leave(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.time, "sleep", leave)
    assert call(monkeypatch, "watch", run, "--events", "jsonl") == 0
    said = capsys.readouterr()
    assert "the run goes on" in said.err and json.loads(said.out.splitlines()[0])["event"] == "task"
    held.close()


def test_a_hundred_steps_stay_a_small_page(finished: RunAccount) -> None:
    steps = tuple(
        step.model_copy(update={"rollout": rollout, "run": "many"})
        for rollout in range(100 // len(finished.steps) + 1) for step in finished.steps
    )  # fmt: skip
    accounts: dict[Any, StepAccount] = {
        place_of(step): next(iter(finished.accounts.values())) for step in steps
    }
    many = dataclasses.replace(finished, steps=steps, accounts=accounts)
    assert len(run_html(many)) - len(run_html(finished)) < 20_000 * len(steps)


@pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.WHY_NOT)
def test_in_a_browser(finished: RunAccount, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(run_html(counted(finished)))
    step = step_id(next(step for step in finished.steps if step.log_gain is not None))
    with browser.browser() as shown:
        shown.open(page, width=390, dark=True)
        shown.run("document.querySelector('[data-figure=progress]').scrollIntoView()")
        shown.wait("document.querySelector('[data-figure=progress] svg') !== null")
        assert shown.run("document.documentElement.scrollWidth") == 390
        shown.run("document.querySelector('details.trajectory > summary').focus()")
        shown.press("Enter")
        assert shown.run("document.querySelector('details.trajectory').open")
        assert not shown.run("document.querySelector('pre.diff').checkVisibility()")
        shown.run(f"location.hash = '{step}'")
        shown.wait(f"document.querySelector('#{step}').open")
        assert shown.run(f"document.querySelector('#{step} pre.diff').checkVisibility()")
        assert "window.hacked" in shown.run(f"document.querySelector('#{step} pre').innerText")
        shown.run(f"document.querySelector('#{step} .canvas').scrollIntoView()")
        shown.wait(f"document.querySelector('#{step} .canvas svg') !== null")
        shown.run("came.value = 'gained'; came.dispatchEvent(new Event('change'))")
        assert shown.run("document.querySelectorAll('details.step:not(.away)').length") == sum(
            (step.log_gain or 0) > 0.01 for step in finished.steps
        )
        assert shown.run("typeof window.hacked") == "undefined"
        assert shown.complaints == []
        assert {url.split(":")[0] for url in shown.requested} <= {"file", "data"}
