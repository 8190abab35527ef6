"""What the report says of how the winner was measured."""

from __future__ import annotations

from kernelblaster.harness.records.timings import Provenance
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.nodes.run.ending.circumstances import baselines_of, notes_of
from kernelblaster.nodes.run.ending.report_text import report_text

MEASURED = {
    "eager_us": 143.0, "compile_us": 130.4, "speedup": 1.82, "speedup_low": 1.74,
    "speedup_high": 1.92, "rounds": 40,
}  # fmt: skip


def result(**changes: object) -> RunResult:
    values = {
        "outcome": "improved", "task": "softmax", "device": "cuda", "gpu": "NVIDIA H200",
        "provenance": Provenance.EVENTS, "initial_us": 100.0, "best_us": 50.0, "gain": 2.0,
        "gain_ci": (1.9, 2.1), "evaluations": 1, "outcomes": {"passed": 1}, "model_calls": 0,
        "tokens": 0, "techniques": (), "path": (), "bottleneck_before": "lsu",
        "bottleneck_after": "dram", "lessons": (), "best_source": "best.cu", "run": "run",
    }  # fmt: skip
    return RunResult.model_validate(values | changes)


def test_pytorch_stands_beside_what_was_measured_with_it() -> None:
    text = report_text(result(baselines=baselines_of(MEASURED)), [], [])
    assert "eager 143.00 us, torch.compile 130.40 us: the best is 1.82x" in text
    assert "1.74 to 1.92" in text
    assert "PyTorch" not in report_text(result(), [], [])


def test_what_was_missing_is_told_and_what_is_so_everywhere_is_not() -> None:
    everywhere = "an address space of its own (candidates share the worker's)"
    assert notes_of({"isolation_missing": everywhere, "compile_failure": "not asked for"}) == ()
    notes = notes_of(
        {
            "isolation_missing": f"{everywhere}; a network of its own (EPERM)",
            "profiler_unavailable": "ERR_NVGPUCTRPERM: run as root",
            "sanitizer_missing": "racecheck: did not finish within 120 s",
            "task_weak_to": "half precision",
            "full_size_unchecked": "blocks build on one another",
            "precision_ratio": 421.4,
        }
    )
    assert len(notes) == 6
    for words in ("EPERM", "run as root", "racecheck", "half precision", "421 times"):
        assert any(words in note for note in notes), words
