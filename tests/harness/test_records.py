"""What the records say by themselves: versions in keys, the meaning of outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from kernelblaster.harness.records import versions
from kernelblaster.harness.records.evaluations import DeviceIdentity, Evaluation, evaluation_key
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.versions import harness_version


def key(kind: str) -> str:
    measures: dict[str, Any] = {"harness": harness_version("simulated")}
    deferred = kind == "deferred:simulated"
    identity = DeviceIdentity(
        kind="deferred" if deferred else kind, gpu="H200", arch="sm_90a", toolchain="nvcc",
        **(measures if deferred else {}),
    )  # fmt: skip
    return evaluation_key("source", "task", identity)


KINDS = ["simulated", "cuda", "deferred", "deferred:simulated"]


@pytest.mark.parametrize(
    ("raised", "changed"),
    [
        ("simulated", {"simulated", "deferred:simulated"}),
        ("cuda", {"cuda", "deferred"}),
        ("judge", set(KINDS)),
    ],
)
def test_a_version_changes_the_keys_of_its_own_results_and_of_no_others(
    monkeypatch: pytest.MonkeyPatch, raised: str, changed: set[str]
) -> None:
    before = {kind: key(kind) for kind in KINDS}
    if raised == "judge":
        monkeypatch.setattr(versions, "JUDGE_VERSION", "999")
    else:
        monkeypatch.setitem(versions.DEVICE_VERSIONS, raised, "999")
    assert {kind for kind in KINDS if key(kind) != before[kind]} == changed


def test_what_was_written_keeps_the_version_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    written = DeviceIdentity(kind="cuda", gpu="H200", arch="sm_90a", toolchain="nvcc")
    body = written.model_dump_json()
    monkeypatch.setitem(versions.DEVICE_VERSIONS, "cuda", "999")
    assert DeviceIdentity.model_validate_json(body) == written


def test_the_task_the_machine_and_a_silent_model_are_no_verdict() -> None:
    silent = {outcome for outcome in Outcome if not outcome.is_verdict}
    assert silent == {
        Outcome.DEGENERATE_TASK, Outcome.PROFILER_UNAVAILABLE, Outcome.NO_ANSWER
    }  # fmt: skip
    assert not any(outcome.breaks_kernel for outcome in silent)


def test_a_slow_forbidden_or_unsupported_kernel_is_not_a_broken_one() -> None:
    whole = {outcome for outcome in Outcome if outcome.is_verdict and not outcome.breaks_kernel}
    assert whole == {
        Outcome.PASSED, Outcome.FORBIDDEN, Outcome.TIMED_OUT, Outcome.UNSUPPORTED,
        Outcome.NOT_APPLICABLE,
    }  # fmt: skip


@pytest.mark.parametrize("outcome", [Outcome.NOT_APPLICABLE, Outcome.NO_ANSWER])
def test_without_a_candidate_there_is_no_evaluation(outcome: Outcome) -> None:
    identity = DeviceIdentity(kind="cuda", gpu="H200", arch="sm_90a", toolchain="nvcc")
    with pytest.raises(ValueError, match="no verdict on a source"):
        Evaluation(
            key="k", source_sha256="s", task_id="t", device=identity, outcome=outcome, reason="why"
        )
