"""Why a candidate was refused, with the source lines it is about, for its writer to mend."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.records.builds import Diagnostic
from ...harness.records.outcomes import Outcome
from ...harness.task.rules import KINDS
from ...harness.vetting.symbols import readable
from .listing import lines_at

MOST_FINDINGS = 6
LONGEST_MESSAGE = 400

MEANING: dict[Outcome, str] = {
    Outcome.COMPILE_ERROR: "It does not compile.",
    Outcome.FORBIDDEN: "It uses what a candidate may not use; it was not run.",
    Outcome.CRASHED: "It crashed, or a launch was refused.",
    Outcome.TIMED_OUT: "It did not end in time: an endless loop, a barrier not all threads reach, "
    "or far too much work.",
    Outcome.OUT_OF_BOUNDS: "It reads or writes outside its buffers.",
    Outcome.MISALIGNED: "It makes a vector access to an address that is no multiple of its size.",
    Outcome.RACE: "Threads access the same memory without a barrier between them.",
    Outcome.UNINITIALIZED_READ: "It reads memory that nothing wrote before: a barrier is missing, "
    "or a part of a tile or of the workspace is never filled.",
    Outcome.WRONG_ANSWER: "Its results differ from PyTorch's.",
    Outcome.NONDETERMINISTIC: "Two runs on the same input differ: a race, poison that is read, or "
    "state kept between calls.",
    Outcome.UNSUPPORTED: "This device cannot run or time it: that does not mean it is wrong. What "
    "is named below exists on a real GPU only; write the kernel without it.",
}


def failure_text(
    outcome: Outcome, reason: str, diagnostics: Sequence[Diagnostic], source: str
) -> str:
    """Return what went wrong: the outcome's meaning, then each finding with its source lines.

    Findings of one kind at one line are told as the first of them, with how many they are.
    """
    lines = [MEANING.get(outcome, str(outcome).replace("_", " "))]
    grouped: dict[tuple[str, str | None, object], list[Diagnostic]] = {}
    for finding in diagnostics:
        key = finding.kind, finding.kernel, finding.line or finding.message
        grouped.setdefault(key, []).append(finding)
    found = [finding_text(group, source) for group in list(grouped.values())[:MOST_FINDINGS]]
    if len(grouped) > MOST_FINDINGS:
        found.append(f"- and {len(grouped) - MOST_FINDINGS} more")
    return "\n".join([*lines, *(found or [f"- {' '.join(reason.split())}"])])


def finding_text(group: Sequence[Diagnostic], source: str) -> str:
    """Return findings of one kind and place: kernel, line, message, and the source there."""
    first = group[0]
    place = [f"kernel {readable(first.kernel)}"] if first.kernel else []
    place += [f"line {first.line}"] if first.line else []
    message = " ".join(first.message.split())
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + " ..."
    kind = first.kind.replace("_", " ")
    head = f"- {kind}{' (' + ', '.join(place) + ')' if place else ''}: {message}{_inputs(message)}"
    count = sum(finding.count for finding in group)
    if count > 1:
        head += f" ({count} times)"
    if first.line and 1 <= first.line <= source.count("\n") + 1:
        head += f"\n{lines_at(source, first.line)}"
    return head


def _inputs(message: str) -> str:
    """Return what the inputs of the case that a message names hold."""
    for name, words in KINDS.items():
        if message.endswith(f"-{name})"):
            return f" where the inputs are {words}"
    return ""
