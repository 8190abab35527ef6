"""Reports of processes that ran candidates: honest ones pass, forged and odd ones are refused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from kernelblaster.harness.judge.border import LARGEST_REAL, LONGEST_TEXT, Malformed, read_report
from kernelblaster.harness.judge.findings import judge
from kernelblaster.harness.judge.reports import CaseReport, Finding, VerifyReport
from kernelblaster.harness.records.outcomes import Outcome

HONEST = VerifyReport(
    cases=[
        CaseReport(name="seed0-normal", launches=1, instructions=4096),
        CaseReport(
            name="seed1-gaussian",
            faults=[("forbidden", "cudaDeviceReset() may not be called")],
            reports=[Finding("race", "block 0 thread 1", kernel="_Z1kPf", line=7, count=3)],
            guards=["4 bytes past the end of out0"],
            modified=["x"],
        ),
    ],
    isolation_missing=["a network of its own"],
)


def sent() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(asdict(HONEST)))
    return body


def test_an_honest_report_arrives_as_it_was_written() -> None:
    found = read_report(VerifyReport, sent())
    assert found == HONEST
    assert judge(found.cases[0]) is None
    failed = judge(found.cases[1])
    assert failed is not None and failed.outcome is Outcome.FORBIDDEN
    assert {item.kind for item in failed.diagnostics} == {
        "forbidden", "race", "out_of_bounds", "modified_input"
    }  # fmt: skip


FORGED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "no cases": (("cases",), None),
    "cases that are words": (("cases",), "all passed"),
    "cases that are numbers": (("cases",), [1, 2]),
    "a name that is a list": (("cases", 0, "name"), ["seed0"]),
    "a fault of one part": (("cases", 1, "faults", 0), ["forbidden"]),
    "a fault of three parts": (("cases", 1, "faults", 0), ["forbidden", "a", "b"]),
    "a finding without a kind": (("cases", 1, "reports", 0), {"message": "m"}),
    "a finding too many fields": (("cases", 1, "reports", 0, "verdict"), "passed"),
    "a negative count": (("cases", 1, "reports", 0, "count"), -1),
    "a count that is none": (("cases", 1, "reports", 0, "count"), float("nan")),
    "an endless count": (("cases", 0, "launches"), float("inf")),
    "a count beyond all measure": (("cases", 0, "instructions"), 10**400),
    "a count as large as an error may be": (("cases", 0, "instructions"), 4.7e19),
    "a fraction of an instruction": (("cases", 0, "instructions"), 0.5),
    "a line in words": (("cases", 1, "reports", 0, "line"), "seven"),
    "a text without end": (("cases", 1, "guards", 0), "x" * (LONGEST_TEXT + 1)),
    "a key without end": (("cases", 0, "x" * (LONGEST_TEXT + 1)), 1),
    "an extra key": (("verdict",), "passed"),
    "isolation in words": (("isolation_missing",), "none"),
}


@dataclass
class Measured:
    """A part of a report that holds a real number, as the largest error is one."""

    error: float = 0.0


@pytest.mark.parametrize("error", [0.0, 3.2e-7, 4.726978168888073e19, 6.8e38, LARGEST_REAL])
def test_errors_may_be_as_large_as_answers_are(error: float) -> None:
    assert read_report(Measured, json.loads(json.dumps({"error": error}))) == Measured(error)


@pytest.mark.parametrize("error", [-1e-9, float("nan"), float("inf"), 2 * LARGEST_REAL, 10**19])
def test_what_is_no_error_is_refused(error: float) -> None:
    with pytest.raises(Malformed, match="the number"):
        read_report(Measured, {"error": error})


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_report_is_the_candidates_failure(name: str) -> None:
    place, value = FORGED[name]
    body: Any = sent()
    part = body
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(Malformed) as caught:
        read_report(VerifyReport, body)
    failure = caught.value.failure()
    assert failure.outcome is Outcome.CRASHED and failure.diagnostics
    assert "\n" not in failure.reason and len(failure.reason) < 500


@pytest.mark.parametrize("value", [None, [], "passed", 1, {}])
def test_what_is_no_report_at_all_is_refused(value: Any) -> None:
    with pytest.raises(Malformed):
        read_report(VerifyReport, value)


def test_nesting_without_end_is_looked_through() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Malformed):
        read_report(VerifyReport, {"cases": value})
