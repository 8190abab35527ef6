"""single_pass_variance: mean and variance from one pass over a row.

The variance is E[(x - p)^2] - (E[x] - p)^2 with the row's first element for p: the plain form, with
p = 0, loses every digit where the mean is far from zero.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, row_kernels, written
from ..rewriting.kernels.row_reader import RowBody
from ..rewriting.kernels.row_steps import Loop, Plain, Step
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import renamed, squeezed, uses
from .conditions import computes
from .operators import NORMS, VARIANCES
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="single_pass_variance",
        description=(
            "Compute mean and variance in one pass: accumulate x and x*x (or Welford's update) "
            "together."
        ),
        applies_when=(
            "Layer norm, batch norm or standard deviation that reads each row once for the mean "
            "and again for the variance."
        ),
        avoid_when=(
            "The mean is large against the deviation: E[x^2] - E[x]^2 cancels. Use Welford or "
            "shift by the first element then."
        ),
        side_effects="Different rounding; cancellation for data far from zero.",
        notes=(
            "Keep two accumulators per thread and reduce both in the same shuffle steps. For "
            "safety accumulate deviations from the row's first element: the shift costs one "
            "subtraction and removes the cancellation."
        ),
        sources=(
            'Welford, "Note on a Method for Calculating Corrected Sums of Squares and '
            'Products" (Technometrics, 1962)',
            'Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance: '
            'Analysis and Recommendations" (The American Statistician, 1983)',
        ),
        change=_apply,
        conditions=(
            computes(*NORMS, *VARIANCES),
            computes(*NORMS, "mean", "var", "std", "var_mean"),
        ),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: RowKernel) -> Rewritten:
        body = _single_pass(found.body)
        if body is None:
            raise NotRecognised("no row kernel sums squared differences from its mean")
        text = written(found, body)
        return Rewritten(source=text, note=f"{found.kernel.name}: one pass for the variance")

    return first_changed(row_kernels(source, task, kernels), change)


def _single_pass(body: RowBody) -> RowBody | None:
    steps = list(body.steps)
    for position, second in enumerate(steps):
        if not isinstance(second, Loop):
            continue
        squares = _squared_difference(second)
        if squares is None:
            continue
        total, value, mean = squares
        before = [s for s in steps[:position] if isinstance(s, Loop)]
        first = next((s for s in before if _sums(s, value, second.variable)), None)
        declared = _declaration(steps[:position], total)
        if first is None or declared is None or not _is_mean(steps[:position], mean, first):
            continue
        element = renamed(value, {second.variable: first.variable})
        pivot = _fresh("pivot", body)
        pivoted = Plain(f"const float {pivot} = {renamed(value, {second.variable: '0'})};")
        lines = (
            *first.lines, f"{total} += ({element} - {pivot}) * ({element} - {pivot});"
        )  # fmt: skip
        merged = replace(first, lines=lines, carried=(*first.carried, (total, "sum")))
        shift = Plain(f"{total} -= {body.columns} * ({mean} - {pivot}) * ({mean} - {pivot});")
        result: list[Step] = []
        for step in steps:
            if step is declared:
                continue
            if step is first:
                result += [declared, pivoted, merged]
            else:
                result.append(shift if step is second else step)
        return body.with_steps(result)
    return None


def _squared_difference(loop: Loop) -> tuple[str, str, str] | None:
    """Return accumulator, value and mean of a loop that sums (value - mean) squared."""
    if len(loop.carried) != 1 or loop.carried[0][1] != "sum":
        return None
    total = loop.carried[0][0]
    text = "\n".join(loop.lines)
    named = re.fullmatch(
        rf"(?:const )?float (\w+) = (.+?) - (\w+);\n{total} \+= \(?\1\)? \* \(?\1\)?;", text, re.S
    )
    if named is not None:
        return total, named[2], named[3]
    squared = text.removeprefix(f"{total} += ").removesuffix(";")
    factor = squared[: (len(squared) - len(" * ")) // 2]
    direct = re.fullmatch(r"\((.+) - (\w+)\)", factor, re.S)
    if direct is not None and text == f"{total} += {factor} * {factor};":
        return total, direct[1], direct[2]
    return None


def _sums(loop: Loop, value: str, variable: str) -> bool:
    """Whether a loop adds up exactly the value."""
    wanted = squeezed(renamed(value, {variable: loop.variable}))
    return any(
        squeezed(line) == f"{name}+={wanted};" for line in loop.lines for name, _ in loop.carried
    )


def _is_mean(steps: list[Step], mean: str, first: Loop) -> bool:
    names = "|".join(name for name, kind in first.carried if kind == "sum")
    pattern = rf"(?:const )?float {mean} = [^;]*\b({names})\b"
    return any(isinstance(s, Plain) and re.match(pattern, s.text) for s in steps)


def _declaration(steps: list[Step], total: str) -> Plain | None:
    for step in steps:
        if isinstance(step, Plain) and re.fullmatch(rf"float {total} = 0(\.0*)?f?;", step.text):
            return step
    return None


def _fresh(wanted: str, body: RowBody) -> str:
    text = "\n".join(
        "\n".join(step.lines) if isinstance(step, Loop) else step.text for step in body.steps
    )
    name, count = wanted, 1
    while uses(text, name):
        count += 1
        name = f"{wanted}_{count}"
    return name
