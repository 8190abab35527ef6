"""Rows of evidence for tests that need no more than a few changed fields."""

from __future__ import annotations

from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.memory.records.evidence import Evidence


def row(number: int = 0, log_gain: float | None = 0.5, **changes: object) -> Evidence:
    """Return a row: of a try that passed, or without a gain gave a wrong answer.

    `signature_before` may be given as named dimensions.
    """
    named = changes.pop("signature", {"dram": 0.8})
    facts: dict[str, object] = {
        "task_id": "t", "run": "r", "iteration": 0, "rollout": 0, "step": number,
        "op_class": "elementwise", "dtype": "float32",
        "parent_sha256": f"parent {number}", "child_sha256": f"child {number}",
        "state_before": "dram_bandwidth_bound",
        "signature_before": centroid_of(named),  # type: ignore[arg-type]
        "technique": "vectorize_memory_access", "expected_log_gain": 0.12,
        "outcome": "wrong_answer" if log_gain is None else "passed", "log_gain": log_gain,
        "device_kind": "simulated", "gpu": "H100", "arch": "sm_90", "family": "hopper",
        "toolchain": "nvcc 13.0", "author": "builtin",
    }  # fmt: skip
    return Evidence.model_validate({**facts, **changes})
