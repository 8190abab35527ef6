"""The bug corpus: every seeded bug is reported with its kind and line, no clean twin is accused."""

from __future__ import annotations

import asyncio
import re

import pytest
from bugs.corpus import Bug, read_all
from bugs.run import Unit, caught, refused, verify_candidates
from often_or_seldom import every

from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome

KERNELS = read_all("kernels")
CANDIDATES = read_all("candidates")
OF_CANDIDATES = ("test_a_candidate_with_a_bug_is_refused", "test_its_clean_twin_passes")


def test_the_corpus_is_large_enough() -> None:
    assert len(KERNELS) + len(CANDIDATES) >= 40
    assert all(bug.lines for bug in KERNELS)


def name_of(bug: Bug) -> str:
    return bug.name


@pytest.fixture(scope="module")
def unit() -> Unit:
    return Unit(KERNELS)


@pytest.mark.parametrize("bug", KERNELS, ids=name_of)
def test_a_seeded_bug_is_reported_at_its_line(unit: Unit, bug: Bug) -> None:
    found = unit.run(bug, "bug")
    kind, line = caught(bug, found)
    assert kind, found
    assert line, (sorted(bug.lines), found)


@pytest.mark.parametrize("bug", KERNELS, ids=name_of)
def test_its_clean_twin_is_not_accused(unit: Unit, bug: Bug) -> None:
    found = unit.run(bug, "twin")
    assert not found.reports, found.told
    assert found.agree


OFTEN_OR_SELDOM = every(
    60, CANDIDATES, lambda bug: bug.report, always=lambda bug: bug.name == "tail_of_the_last_block"
)


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[str, StageResult]:
    """What verification says of each candidate of a chosen test, and of its `twin NAME`."""
    chosen = {
        item.callspec.params["bug"].name
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname in OF_CANDIDATES
    }
    chosen.add("tail_of_the_last_block")
    return asyncio.run(verify_candidates([bug for bug in CANDIDATES if bug.name in chosen]))


@pytest.mark.parametrize("bug", OFTEN_OR_SELDOM, ids=name_of)
def test_a_candidate_with_a_bug_is_refused(verdicts: dict[str, StageResult], bug: Bug) -> None:
    stage = verdicts[bug.name]
    assert refused(bug, stage) == (True, True), (sorted(bug.lines), stage.reason)
    if bug.lines:
        assert f"line {stage.diagnostics[0].line}" in stage.reason


@pytest.mark.parametrize("bug", OFTEN_OR_SELDOM, ids=name_of)
def test_its_clean_twin_passes(verdicts: dict[str, StageResult], bug: Bug) -> None:
    twin = verdicts[f"twin {bug.name}"]
    assert twin.outcome is Outcome.PASSED, twin.reason


def test_a_report_names_all_that_is_known(verdicts: dict[str, StageResult]) -> None:
    found = verdicts["tail_of_the_last_block"].diagnostics[0]
    assert found.kernel == "_Z5scalePKfPf" and found.line == 10
    for words in (r"past the end of (x|out0) \(\d+ bytes\)", r"block \d+ thread \d+",
                  r"PTX line \d+: ld\.global"):  # fmt: skip
        assert re.search(words, found.message), found.message


def test_a_race_names_both_sides(unit: Unit) -> None:
    (bug,) = [bug for bug in KERNELS if bug.name == "warp_shift_without_syncwarp"]
    found = unit.run(bug, "bug")
    assert found.reports == (("race", 12, 8),)
    assert "reads what thread 1 (warp 0) wrote at line" in found.told[0]
    assert "byte 4 of row (256 bytes of shared memory)" in found.told[0]
