"""drop_max_subtraction: a softmax without the pass for its maximum. Overflows for large inputs."""

from __future__ import annotations

import re
from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, row_kernels, written
from ..rewriting.kernels.row_reader import RowBody
from ..rewriting.kernels.row_steps import Loop, Plain, Step
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import uses
from .conditions import computes
from .operators import ATTENTION, ROWS, SOFTMAXES
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="drop_max_subtraction",
        description="Leave out the maximum pass of softmax: exp(x) / sum(exp(x)) directly.",
        applies_when=(
            "Inputs are known to be small in magnitude and a whole pass over the row is worth "
            "saving."
        ),
        avoid_when=(
            "Any input may exceed about 88 in fp32 (11 in fp16): exp overflows to infinity and the "
            "result is NaN. Verification with large magnitudes refuses it, rightly."
        ),
        side_effects="Numerically unsafe for large inputs.",
        notes="Prefer online_softmax or cache_row_in_registers, which save the pass and stay safe.",
        sources=(
            'Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and '
            'softmax functions" (IMA Journal of Numerical Analysis, 2021)',
        ),
        change=_apply,
        conditions=(computes(*SOFTMAXES, *ATTENTION), computes(*ROWS)),
        precondition=(
            "leaves out softmax's maximum pass; only where the values before it are bounded (|x| < "
            "80): the tests' inputs go to 128"
        ),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: RowKernel) -> Rewritten:
        body = _without_maximum(found.body)
        if body is None:
            raise NotRecognised("no row kernel subtracts its maximum inside an exponential")
        text = written(found, body)
        return Rewritten(source=text, note=f"{found.kernel.name}: no pass for the maximum")

    return first_changed(row_kernels(source, task, kernels), change)


def _without_maximum(body: RowBody) -> RowBody | None:
    """Return the row program without its maximum, or None when it is used otherwise."""
    for loop in body.steps:
        if not isinstance(loop, Loop) or [kind for _, kind in loop.carried] != ["max"]:
            continue
        name = loop.carried[0][0]
        kept: list[Step] = []
        subtracted = False
        for step in body.steps:
            if step is loop or isinstance(step, Plain) and _declares(step.text, name):
                continue
            lines = step.lines if isinstance(step, Loop) else (step.text,)
            changed = tuple(re.sub(rf"(?:(?<!\s)\s+)?-\s*{name}\b", "", line) for line in lines)
            subtracted |= any("exp" in line for line in lines) and changed != lines
            if any(uses(line, name) for line in changed):
                return None
            kept.append(
                replace(step, lines=changed)
                if isinstance(step, Loop) else replace(step, text=changed[0])
            )  # fmt: skip
        if subtracted:
            return body.with_steps(kept)
    return None


def _declares(text: str, name: str) -> bool:
    return re.match(rf"(const\s+)?float\s+{name}\s*=", text) is not None
