"""The commands over many runs: what they refuse, in one line, and what they leave."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graph_support
import pytest
from benches import done, planned
from commands import assert_one_clear_line
from rich.console import Console

from kernelblaster.cli.showing.bench_view import filled


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "one.py").write_text("# one\n")
    return tmp_path / "suite"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "minmal"), "did you mean minimal"),
        (("--ablate", "width"), "choose one of memory"),
        (("--ablate", "depth", "--policy", "minimal"), "leave --policy out"),
        (("--budget", "evaluations"), "write NAME=NUMBER"),
        (("--budget", "evaluations=-1"), "greater than or equal to 1"),
        (("--budget", "evaluations=0"), "greater than or equal to 1"),
        (("--budget", "money=inf"), "finite number"),
        (("--budget", ","), "names no cap"),
        (("--policy", "minimal,zero_shot", "--steps", "2"), "--steps: none of the policies"),
        (("--tasks", "two"), "is called so"),
        (("--knowledge", "nowhere"), "write shared, each"),
        (("--knowledge", "."), "knowledge base"),
        (("--device", "deferred", "--gpu", "H100"), "waits for its measurements"),
        (("--gpu", "GTX0"), "GTX0"),
        (("--model", "nobody"), "nobody"),
        (("--steps", "0"), "--steps 0"),
        (("--level", "9"), "level9"),
        (("--set", "N=3"), "--set names a size of one task"),
        (("--kernelbench", "nowhere"), "name a suite"),
        (("--html", "nowhere/report.html"), "or name another file"),
        (("--html", "."), "is a folder"),
        (("--html", "/dev/null"), "is a device"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_nothing(
    words: tuple[str, ...], said: str, suite: Path, tmp_path: Path, asked: Callable[..., Any]
) -> None:
    device = () if "--device" in words else ("--device", "simulated")
    done = asked("bench", suite, *words, *device, "--out", tmp_path / "bench")
    assert_one_clear_line(done, said)
    assert not (tmp_path / "bench").exists()


def test_another_bench_in_the_directory_and_one_of_other_versions_are_refused(
    suite: Path, tmp_path: Path, asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install_bench(monkeypatch.setattr)
    planned(tmp_path / "bench")
    words = ("--device", "simulated", "--out", tmp_path / "bench")
    assert_one_clear_line(asked("bench", suite, *words), "holds another bench")
    late = ("--budget", "calls=1", "--policy", "minimal", "--dtype", "fp16", "--jobs", "1")
    assert_one_clear_line(
        asked("bench", tmp_path / "bench", *late), "--policy, --budget, --dtype: a bench that goes"
    )
    with monkeypatch.context() as later:
        later.setattr("kernelblaster.harness.records.versions.JUDGE_VERSION", "999")
        told = asked("bench", tmp_path / "bench")
        assert_one_clear_line(told, "judge and device was", "is 999.")
    monkeypatch.setattr("kernelblaster.bench.planning.torch_version", lambda: "0.1")
    assert_one_clear_line(asked("bench", tmp_path / "bench"), "torch was", "is 0.1")


def test_a_bench_that_is_over_is_shown_and_its_winners_are_measured_again(
    tmp_path: Path, asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    graph_support.install_bench(monkeypatch.setattr)
    lock = planned(tmp_path / "bench", "minimal", names=("one", "bad"), evaluations=3)
    done(tmp_path / "bench", lock)
    page = tmp_path / "report.html"
    shown = asked("bench", tmp_path / "bench", "--html", page)
    assert shown.returncode == 0 and "minimal" in shown.stdout and "no Python" in shown.stdout
    assert "minimal" in page.read_text() and str(page) in shown.stdout
    assert (tmp_path / "bench" / "results.csv").is_file()
    again = asked("rerun", tmp_path / "bench")
    assert again.returncode == 0 and "1 holds" in again.stdout, again.stderr
    assert (tmp_path / "bench" / "rerun.json").is_file()
    assert_one_clear_line(asked("rerun", page), "say so with --trust")
    sent = asked("rerun", page, "--trust")
    assert sent.returncode == 0 and "1 holds" in sent.stdout, sent.stderr
    assert (tmp_path / "report.rerun.json").is_file()
    (tmp_path / "bench" / "runs" / "minimal" / "seed-0" / "one" / "best.cu").write_text("us: 900\n")
    assert asked("rerun", tmp_path / "bench", "--quiet").returncode == 1
    assert_one_clear_line(asked("rerun", tmp_path), "is no run directory")


def test_a_table_that_does_not_fit_is_laid_on_its_side() -> None:
    titles = ("policy", *(f"figure_{number}" for number in range(9)))
    rows = [(policy, *("1.00x (0.50 to 2.00)" for _ in range(9))) for policy in ("one", "two")]
    for width, lines in ((200, 2), (80, 9)):
        with (console := Console(width=width, file=io.StringIO())).capture() as told:
            console.print(filled(titles, rows, "title", width))
        assert "…" not in told.get() and "figure_8" in told.get()
        assert sum("1.00x" in line for line in told.get().splitlines()) == lines
    many = [("a_task_with_a_long_name_" * 4, "1.00x")] * 40
    assert len(filled(("task", "one"), many, "tasks", 80).columns) == 2
