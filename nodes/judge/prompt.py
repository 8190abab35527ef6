"""The Judge's question to a model: one candidate, and what was found of that same candidate.

Light memory: of earlier rounds it holds the last advice in a sentence, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...harness.records.evaluations import Evaluation
from ...harness.records.profiles import LaunchProfile, Profile
from ...harness.records.timings import Provenance
from ...tools.models.records import Message
from ...tools.wording.failures import failure_text
from ...tools.wording.listing import listing
from ...tools.wording.measurements import costliest, summary_text
from ...tools.wording.units import in_microseconds
from ...tools.workspace import Workspace
from ..common.policies import Mode
from ..common.prompts.render import render
from ..common.prompts.subject import task_context
from ..records.rounds import Candidate, Feedback
from .subset import metric_subset

State = Mapping[str, Any]
"""What the node reads."""


class Subject(NamedTuple):
    """What is judged: one source, and the evaluation of that source."""

    mode: Mode
    source: str
    evaluation: Evaluation


def judge_messages(workspace: Workspace, state: State, subject: Subject) -> tuple[Message, ...]:
    """Return the prompt of the Judge."""
    plan = state["plan"]
    task = workspace.task(state["summary"].artifact)
    mode, source, evaluation = subject
    found = {"failure": "", "summary": "", "counters": ""}
    if mode == "correction":
        found["failure"] = failure_text(
            evaluation.outcome, evaluation.reason, evaluation.diagnostics, source
        )
    else:
        assert evaluation.profile is not None and evaluation.timing is not None
        found["summary"] = summary_text(task, evaluation.profile, evaluation.timing)
        found["counters"] = counters_text(evaluation.profile)
    return render(
        "judge",
        plan.models.context_of("judge"),
        **task_context(task, workspace.device.identity),
        **found,
        mode=mode,
        listing=listing(source),
        last=last_words(state["feedback"], state["candidate"], state["latest"]),
    )


def shown_counters(profile: Profile) -> tuple[str, ...]:
    """Return the names of the subset that a profile's costliest launches hold."""
    launches = costliest(profile)
    return tuple(
        name for name in metric_subset() if any(name in each.metrics for each in launches)
    )


def counters_text(profile: Profile) -> str:
    """Return the subset's counters of the costliest launches, and which are not counted here."""
    shown, total = shown_counters(profile), profile.microseconds or 1.0
    parts = [_launch(launch, total, shown) for launch in costliest(profile)]
    missing = [name for name in metric_subset() if name not in shown]
    if not shown:
        parts.append("Nothing was counted: judge by the code and its time alone.")
    elif missing:
        who = "the simulated GPU does" if profile.provenance is Provenance.SIMULATED else "ncu did"
        parts.append(f"Which {who} not count, so say nothing of them: {', '.join(missing)}.")
    return "\n".join(parts)


def _launch(launch: LaunchProfile, total: float, shown: Sequence[str]) -> str:
    shape = f"{'x'.join(map(str, launch.grid))} blocks of {'x'.join(map(str, launch.block))}"
    lines = [
        f"{launch.kernel}, {shape} threads: {in_microseconds(launch.microseconds)}, "
        f"{launch.microseconds / total:.0%} of the call"
    ]
    lines += [f"- {name}: {launch.metrics[name]:.5g}" for name in shown if name in launch.metrics]
    return "\n".join(lines)


def last_words(
    feedback: Feedback | None, candidate: Candidate | None, latest: Candidate | None
) -> str:
    """Return the last advice and what came of it in a sentence; empty before there is one."""
    if feedback is None or candidate is None:
        return ""
    asked = f"{feedback.method}: {feedback.advice}"
    if candidate.source_sha256 is None:
        return f"{asked}\nNothing was written: {candidate.note}"
    if latest is None or latest.point is None:
        return f"{asked}\nIts candidate failed: {candidate.outcome}."
    return asked
