"""Policy evaluation's question to a model: expected and measured gains, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...memory.records.evidence import Step
from ...tools.models.records import Message
from ...tools.wording.experience import gain_text, measured_gain
from ...tools.workspace import Workspace
from ..common.prompts.iteration import labels_of, steps_text
from ..common.prompts.render import render
from ..records.gradient import ForecastScore, PolicyEvaluation, TechniqueReview
from .builtin import OFF

State = Mapping[str, Any]
"""What the node reads."""

class Figures(NamedTuple):
    """What was computed of an iteration."""

    evaluation: PolicyEvaluation
    steps: list[Step]
    names: dict[str, str]
    """Of states, by id."""


def evaluation_messages(
    workspace: Workspace, state: State, figures: Figures
) -> tuple[Message, ...]:
    """Return the prompt of policy evaluation."""
    return render(
        "policy_evaluation",
        state["plan"].models.context_of("policy_evaluation"),
        **evaluation_context(workspace, state, figures),
    )


def evaluation_context(workspace: Workspace, state: State, figures: Figures) -> dict[str, Any]:
    """Return what the template speaks of."""
    summary, evaluation = state["summary"], figures.evaluation
    overall = f"{evaluation.success_rate:.0%} of {len(figures.steps)} steps passed"
    if evaluation.mean_absolute_error is not None:
        apart = gain_text(evaluation.mean_absolute_error)
        overall += f"; expected and measured gain differ by a factor of {apart} on average"
    overall += "".join(
        f"; {label}: {words}"
        for label, told in (("forecasts", evaluation.forecasts), ("before", evaluation.earlier))
        if told is not None and (words := _score_text(told, figures))
    )
    return {
        "name": summary.name,
        "op_class": summary.op_class,
        "dtype": summary.dtype,
        "gpu": workspace.measured_by.gpu,
        "iteration": state["iteration"] + 1,
        "overall": f"{overall}.",
        # Of a single step its own line says the same.
        "reviews": "\n".join(
            _line(review)
            for review in evaluation.reviews
            if review.trials > 1 or review.off_since is not None
        ),
        "steps": steps_text(figures.steps, figures.names),
    }


def _score_text(told: ForecastScore, figures: Figures) -> str:
    """Return a score in a few words, with the steps that were off most."""
    parts = []
    if told.bias is not None:
        side = "too much" if told.bias < 0 else "too little"
        parts.append(f"{side} by {gain_text(abs(told.bias))} on average")
    if told.covered is not None:
        parts.append(f"{told.covered:.0%} within their spread (90 % should be)")
    if told.pass_log_loss is not None:
        parts.append(f"log loss of passing {told.pass_log_loss:.2f} (a coin's is 0.69)")
    labels = labels_of(figures.steps)
    off = [f"{labels[name]} by {gain_text(away)}" for name, away in told.worst.items()
           if name in labels and abs(away) > OFF]  # fmt: skip
    if off:
        parts.append(f"off most: {', '.join(off)}")
    return ", ".join(parts)


def _line(review: TechniqueReview) -> str:
    measured = review.measured_log_gain
    since = "" if review.off_since is None else f"; off since iteration {review.off_since + 1}"
    return (
        f'- {review.technique} in "{review.state_name}": expected '
        f"{gain_text(review.expected_log_gain)}, measured "
        f"{'nothing' if measured is None else measured_gain(measured)}; {review.successes} of "
        f"{review.trials} passed{since}"
    )
