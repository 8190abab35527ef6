"""What Compute Sanitizer prints, as it printed it on an H200, becomes our outcomes."""

from __future__ import annotations

import stat
from pathlib import Path

import places
import pytest

from kernelblaster.harness.nsight.sanitizer import (
    failure_of,
    reports_in,
    sanitize_program,
)
from kernelblaster.harness.records.outcomes import Outcome

DATA = places.DATA / "sanitizer"


@pytest.mark.parametrize(
    ("file", "outcome", "line"),
    [
        ("oob.memcheck", Outcome.OUT_OF_BOUNDS, 7),
        ("oob_read.memcheck", Outcome.OUT_OF_BOUNDS, 7),
        ("misaligned.memcheck", Outcome.MISALIGNED, 7),
        ("assert.memcheck", Outcome.CRASHED, None),
        ("race.racecheck", Outcome.RACE, 7),
        ("race_same.racecheck", Outcome.RACE, 7),
        ("shared_oob.memcheck", Outcome.OUT_OF_BOUNDS, 7),
        ("trap.memcheck", Outcome.CRASHED, 7),
    ],
)
def test_reports_become_outcomes_with_the_line(
    file: str, outcome: Outcome, line: int | None
) -> None:
    found = failure_of(file.split(".")[1], reports_in((DATA / f"{file}.txt").read_text()))
    assert found is not None
    assert found.outcome is outcome
    assert found.diagnostics[0].line == line
    assert found.reason.startswith("compute-sanitizer ")
    assert "\n" not in found.reason


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_a_clean_run_is_no_report(tool: str) -> None:
    assert failure_of(tool, reports_in((DATA / f"honest.{tool}.txt").read_text())) is None


TOOLKIT = "cuda_ptx_generated.h"


@pytest.mark.parametrize(
    ("strong", "outcome"),
    [
        ({(TOOLKIT, 949), (TOOLKIT, 279)}, None),
        ({(TOOLKIT, 949)}, Outcome.RACE),
        ({(TOOLKIT, 949), ("candidate.cu", 279)}, Outcome.RACE),
        (set(), Outcome.RACE),
    ],
)
def test_no_race_is_one_of_which_every_access_is_strong(
    strong: set[tuple[str, int]], outcome: Outcome | None
) -> None:
    text = (DATA / "strong.racecheck.txt").read_text()
    found = failure_of("racecheck", reports_in(text), frozenset(strong))
    assert (found and found.outcome) == outcome


def test_what_is_out_of_bounds_is_so_on_strong_lines_too() -> None:
    text = (DATA / "oob.memcheck.txt").read_text()
    assert failure_of(
        "memcheck", reports_in(text), frozenset({("candidate.cu", 7)})
    ) is not None


def program(folder: Path, body: str) -> Path:
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(folder: Path, body: str, seconds: float = 30.0) -> tuple[Outcome, dict[str, object], str]:
    found = sanitize_program(
        ["true"], directory=folder, environment={"PATH": "/usr/bin:/bin"}, seconds=seconds,
        where="at small dimensions", sanitizer=program(folder, body),
    )  # fmt: skip
    return found.outcome, dict(found.facts), found.reason


def test_what_found_nothing_is_named(tmp_path: Path) -> None:
    outcome, facts, _ = run(tmp_path, "exit 0")
    assert outcome is Outcome.PASSED
    assert facts == {"sanitizer": "memcheck, racecheck at small dimensions"}


def test_where_hazards_that_are_none_crowd_out_others_it_is_said(tmp_path: Path) -> None:
    for number, (more, missing) in enumerate((
        ("", False), ("Warning: Maximum number of hazards reached.", True),
        ("========= Target application returned an error", True),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        text = (DATA / "strong.racecheck.txt").read_text() + more
        (folder / "said").write_text(text)
        found = sanitize_program(
            ["true"], directory=folder, environment={"PATH": "/usr/bin:/bin"}, seconds=30.0,
            sanitizer=program(folder, f"cat {folder}/said; exit 86"), tools=["racecheck"],
            strong=frozenset({(TOOLKIT, 949), (TOOLKIT, 279)}),
        )  # fmt: skip
        assert found.outcome is Outcome.PASSED
        assert ("sanitizer_missing" in found.facts, "sanitizer" in found.facts) == (
            missing, not missing,
        )  # fmt: skip


def test_a_tool_that_fails_or_hangs_is_no_verdict(tmp_path: Path) -> None:
    outcome, facts, _ = run(tmp_path, "echo no device; exit 3")
    assert outcome is Outcome.PASSED
    words = "at small dimensions: memcheck: ended with status 3: no device"
    assert str(facts["sanitizer_missing"]).startswith(words)
    assert "sanitizer" not in facts


def test_the_limit_is_that_of_all_tools_together(tmp_path: Path) -> None:
    hanging = 'case "$2" in racecheck) exec sleep 100;; esac'
    outcome, facts, _ = run(tmp_path, hanging, seconds=1.0)
    assert outcome is Outcome.PASSED
    assert facts["sanitizer"] == "memcheck at small dimensions"
    assert "racecheck: did not finish within" in str(facts["sanitizer_missing"])
    first = 'case "$2" in memcheck) exec sleep 100;; esac'
    outcome, facts, _ = run(tmp_path, first, seconds=0.5)
    assert "memcheck: did not finish within 0.5 s" in str(facts["sanitizer_missing"])
    assert "racecheck: nothing was left of 0.5 s" in str(facts["sanitizer_missing"])


def test_errors_in_words_not_known_are_still_errors(tmp_path: Path) -> None:
    outcome, _, reason = run(tmp_path, "echo '========= ERROR SUMMARY: 3 errors'; exit 86")
    assert outcome is Outcome.CRASHED
    assert "3 errors" in reason


def test_without_a_sanitizer_the_result_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kernelblaster.harness.nsight.sanitizer._INSTALLATIONS", ())
    found = sanitize_program(["true"], directory=tmp_path, environment={}, seconds=1.0)
    assert found.outcome is Outcome.PASSED
    assert "install" in str(found.facts["sanitizer_missing"])
