"""What came of a candidate, and who is to blame."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What came of a candidate. Only `passed` is a success; each other names the first reason.

    The last two say why there is no candidate: an Evaluation never has them.
    """

    PASSED = "passed"
    COMPILE_ERROR = "compile_error"
    FORBIDDEN = "forbidden"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    RACE = "race"
    UNINITIALIZED_READ = "uninitialized_read"
    WRONG_ANSWER = "wrong_answer"
    NONDETERMINISTIC = "nondeterministic"
    UNSUPPORTED = "unsupported"
    """The simulated device does not know an instruction: this candidate needs a real GPU."""
    DEGENERATE_TASK = "degenerate_task"
    PROFILER_UNAVAILABLE = "profiler_unavailable"
    NOT_APPLICABLE = "not_applicable"
    """The technique found nothing to rewrite in the source."""
    NO_ANSWER = "no_answer"
    """The writer, a model, gave nothing that could be read."""

    @property
    def is_verdict(self) -> bool:
        """Whether it says anything of the candidate and of the technique that made it.

        Where not, the task, the machine or a model without an answer is the reason: no other
        source would have changed it.
        """
        return self not in (
            Outcome.DEGENERATE_TASK, Outcome.PROFILER_UNAVAILABLE, Outcome.NO_ANSWER
        )  # fmt: skip

    @property
    def breaks_kernel(self) -> bool:
        """Whether the kernel no longer compiles, or crashes, or answers wrongly.

        Running out of time does not say so, nor do a forbidden call or what a device cannot do.
        """
        return self in (
            Outcome.COMPILE_ERROR, Outcome.CRASHED, Outcome.OUT_OF_BOUNDS, Outcome.MISALIGNED,
            Outcome.RACE, Outcome.UNINITIALIZED_READ, Outcome.WRONG_ANSWER,
            Outcome.NONDETERMINISTIC,
        )  # fmt: skip

    @property
    def has_candidate(self) -> bool:
        """Whether a source was written of which it can be the verdict."""
        return self not in (Outcome.NOT_APPLICABLE, Outcome.NO_ANSWER)


def outcome_in_words(outcome: str, reason: str) -> str:
    """Return an outcome and its reason as one line; a reason often begins with its outcome."""
    words = outcome.replace("_", " ")
    return reason if reason.startswith(f"{words}: ") else f"{words}: {reason}"
