"""What the GPU worker's answers mean: verdicts, times, and how they compare with PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...judge import timing
from ...judge.findings import judge, lost_precision
from ...judge.run_verdict import degenerate_in_words, with_constants
from ...records.builds import Diagnostic
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.timings import Provenance, Timing
from ..reports import MeasureAnswer, VerifyAnswer

METHOD = "cuda events, L2 flushed, enqueued ahead, inputs fresh, interleaved with PyTorch eager"
MOST_DIAGNOSTICS = 5
DISTURBED_SHARE = 0.25
"""Of the rounds: medians are as good as without so many."""

Facts = dict[str, float | int | str]


def verdict(answer: VerifyAnswer) -> StageResult:
    """Return the verdict on a verification that the worker finished."""
    if answer.degenerate:
        reason = degenerate_in_words(answer.degenerate)
        return StageResult(outcome=Outcome.DEGENERATE_TASK, reason=reason)
    for reported in answer.cases:
        failed = judge(reported)
        if failed:
            return failed
    if answer.mismatches:
        found = tuple(
            Diagnostic(kind="mismatch", message=f"{message} (case {case})")
            for case, message in answer.mismatches[:MOST_DIAGNOSTICS]
        )
        return StageResult(
            outcome=Outcome.WRONG_ANSWER, reason=found[0].message, diagnostics=found
        )
    if answer.repeat:
        case, message = answer.repeat
        reason = f"two runs on the same input disagree: {message} (case {case})"
        return StageResult(
            outcome=Outcome.NONDETERMINISTIC, reason=reason,
            diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
        )  # fmt: skip
    ratio = answer.facts.get("precision_ratio")
    lost = None if ratio is None or isinstance(ratio, str) else lost_precision(ratio)
    relied = str(answer.facts.get("relies_on", ""))
    passed = StageResult(
        outcome=Outcome.PASSED, facts=answer.facts, diagnostics=(lost,) if lost else ()
    )
    return with_constants(passed, relied.split(", ") if relied else [])


def in_seconds(parts: Mapping[str, float]) -> str:
    """Return the parts of a request in words, as a fact."""
    return ", ".join(f"{name} {took:.2f} s" for name, took in parts.items())


def timing_failure(answer: MeasureAnswer) -> StageResult:
    """Return why a candidate that was verified could not be timed."""
    failed = judge(answer.case)
    if failed is None:
        reason = f"{answer.mismatch}, though verification passed"
        failed = StageResult(
            outcome=Outcome.WRONG_ANSWER, reason=reason,
            diagnostics=(Diagnostic(kind="mismatch", message=reason),),
        )  # fmt: skip
    return failed


def baseline_facts(answer: MeasureAnswer) -> Facts:
    """Return the baselines of the same rounds, and how the candidate compares with them.

    Where torch.compile was measured before, its time is eager's, multiplied by the ratio of then
    (`compile_kept`).
    """
    samples = dict(answer.samples)
    if answer.kept_compile:
        samples["compile"] = [answer.kept_compile * each for each in samples["eager"]]
    facts: Facts = {
        "rounds": len(samples["candidate"]),
        "timed_answers_checked": answer.checked,
        "input_sets": answer.sets,
        "measure_parts": in_seconds(answer.parts),
    }
    late = [
        f"{name} in {count} of its samples" for name, count in sorted(answer.disturbed.items())
        if count > DISTURBED_SHARE * len(samples["candidate"])
    ]  # fmt: skip
    if late:
        facts["host_late"] = f"{', '.join(late)}, {facts['rounds']} rounds"
    best, against = "", None
    for name in ("eager", "compile"):
        if name not in samples:
            continue
        median = timing.summary(samples[name])["median"]
        facts[f"{name}_us"] = median
        if against is None or median < against:
            best, against = name, median
    facts |= {f"{name}_host_us": us for name, us in answer.host_microseconds.items()}
    host = answer.host_microseconds.get(best, 0.0)
    gpu = float(facts[f"{best}_us"])
    if host > gpu:
        facts["host_bound"] = f"{host:.0f} us for {gpu:.0f}"
    if answer.kept_compile:
        facts["compile_kept"] = answer.kept_compile
    if answer.compile_failure:
        facts["compile_failure"] = answer.compile_failure
    ratio = timing.compare(samples["candidate"], samples[best])
    return facts | {
        "baseline": best,
        "speedup": 1 / ratio.ratio,
        "speedup_low": 1 / ratio.interval[1],
        "speedup_high": 1 / ratio.interval[0],
        "ratio_half_width": ratio.half_width,
    }


def timing_of(samples: Sequence[float]) -> Timing:
    """Return the measured time of a contestant."""
    found = timing.summary(samples)
    return Timing(
        microseconds=found["median"], samples=tuple(samples),
        interval=(found["low"], found["high"]), method=METHOD, provenance=Provenance.EVENTS,
    )  # fmt: skip
