"""What is found at full dimensions: what was compared, and each failure in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..records.tasks import Task
from ..records.tensors import TensorSpec
from ..task.full_case import RowTolerance
from .findings import judge
from .reports import CaseReport, Finding
from .verification import ODD_FLAG, may_step

NOT_WRITTEN = "not_written"
"""Kind of the finding that the sampled blocks write too little."""


@dataclass(frozen=True)
class Checked:
    """What was compared with PyTorch's answer at full dimensions, and what was looked at there."""

    elements: int
    withheld: str = ""
    """Why some of what the blocks wrote could not be compared; empty where all of it was."""
    share: float = 0.0
    """Of the elements of all outputs, those compared, 0 to 1."""
    blocks: float = 0.0
    """Of the blocks of the launch of which fewest ran, those that did, 0 to 1."""
    race_checked: int = 0
    """Blocks that were also run with all checks."""
    orders: int = 1
    """Orders of blocks and warps, each on a poison of its own, in which they ran."""
    imprecise: tuple[str, ...] = ()
    """What of the outputs PyTorch's own answer is too imprecise to tell."""
    uncompared: tuple[str, ...] = ()
    """Outputs of which nothing was compared, though PyTorch's answer is known."""
    unproven: tuple[str, ...] = ()
    """Outputs that so few of the blocks write to that the blocks that ran do not show whether all
    of it is written."""

    @property
    def in_words(self) -> str:
        """Of what share of answers and blocks it speaks."""
        return (
            f"{_percent(self.share)} of the elements compared; {_percent(self.blocks)} of the "
            f"blocks run, in {'two orders' if self.orders > 1 else 'one order'}, "
            f"{self.race_checked or 'none'} of them with all checks"
        )

    @property
    def facts(self) -> dict[str, float | int | str]:
        """How much was compared, and why not all of it."""
        facts: dict[str, float | int | str] = {"full_size_checked": self.elements}
        if self.blocks:
            facts["full_size_coverage"] = self.in_words
        if self.unproven:
            facts["full_size_unproven"] = f"whether all of {', '.join(self.unproven)} is written"
        return facts | ({"full_size_unchecked": self.unchecked} if self.unchecked else {})

    @property
    def unchecked(self) -> str:
        """Why not all of what the blocks wrote was compared; empty where it was."""
        told = [self.withheld] if self.withheld else []
        if self.imprecise:
            told.append(f"PyTorch's own answer is too imprecise for {' and '.join(self.imprecise)}")
        return "; ".join(told)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What to say of a pass that nothing, or too little, was compared for."""
        if not self.unchecked:
            return ()
        what = "part of the answer was not" if self.elements else "nothing was"
        message = f"at full dimensions {what} compared with PyTorch's: {self.unchecked}"
        return (Diagnostic(kind="not_compared", message=message),)


@dataclass
class Found:
    """What the parts of one output add up to."""

    checked: int = 0
    """Elements compared with PyTorch's."""
    unjudged: int = 0
    """Elements of rows that PyTorch's answer does not tell."""
    wrong: int = 0
    stepped: int = 0
    """Those of them that are no more than a step off."""
    first: tuple[int, float, float] | None = None
    """Index, expected, got."""
    written: int | None = None
    """Bytes that kernels wrote; None where that cannot be told."""
    by_atomics: int = 0
    """Elements that atomics touched: other blocks would go on adding to them."""
    by_transfers: float = 0.0
    """Bytes that only copies and fills wrote, and rightly where an answer tells."""

    def is_wrong(self, tolerance: RowTolerance | None) -> bool:
        """Say whether more differs than may be a step off."""
        share = tolerance.share if tolerance else 0.0
        return self.wrong > self.stepped or self.wrong > may_step(share, self.checked)


def _percent(share: float) -> str:
    return "all" if share >= 1 else f"{100 * share:.2g} %"


def verified_by_sample(checked: Checked) -> StageResult:
    """Return the verdict on a task of which nothing but a sample of each kernel's blocks is run.

    `checked` says what two runs of them came to that did not fail (`judge_wide`). All that these
    blocks wrote must have been compared: a kernel that looks at what others leave, and so may know
    that few of them run, passes nothing here.
    """
    why = checked.withheld
    if checked.uncompared and not why:
        why = f"nothing that the blocks wrote to {', '.join(checked.uncompared)} could be compared"
    if why or not checked.elements:
        reason = (
            "nothing smaller than the full dimensions runs, and a sample of the blocks does not "
            f"tell right from wrong there: {why or checked.unchecked or 'nothing was compared'}; "
            "let blocks not depend on each other, choose smaller sizes with --set NAME=VALUE, or "
            "verify it on a GPU"
        )
        return StageResult(
            outcome=Outcome.UNSUPPORTED, reason=reason,
            diagnostics=(Diagnostic(kind="not_compared", message=reason),),
        )  # fmt: skip
    return StageResult(
        outcome=Outcome.PASSED,
        facts={"verified_by_sample": f"at full dimensions, {checked.in_words}"},
    )


def nothing_launched(task: Task) -> StageResult | None:
    """Return the failure of a launch() that started no work; None for outputs of no elements."""
    written = [spec.name for spec in task.full.of_role("output") if spec.numel]
    if not written:
        return None
    return mismatch(
        f"at full dimensions launch() started no kernel and no copy: {written[0]} is not written"
    )


def wrong_answer(
    spec: TensorSpec, found: Found, which: str = "that the sampled blocks wrote"
) -> StageResult:
    """Return the failure of an output of which some elements are wrong, with the first of them."""
    assert found.first is not None
    flat, expected, got = found.first
    index = ", ".join(str(int(i)) for i in np.unravel_index(flat, spec.shape)) if spec.shape else ""
    return mismatch(
        f"at full dimensions {spec.name}[{index}]: expected {expected:.7g}, got {got:.7g}; "
        f"{found.wrong} of {found.checked} elements {which} differ"
        f"{ODD_FLAG if spec.dtype == 'bool' and got > 1 else ''}"
    )


def unsteady_answer(
    spec: TensorSpec, place: int, count: int, which: str = "all blocks"
) -> StageResult:
    """Return the failure of an output in which two runs of all blocks disagree, or of some."""
    index = ", ".join(map(str, map(int, np.unravel_index(place, spec.shape)))) if spec.shape else ""
    reason = (
        f"at full dimensions two runs of {which}, with other poison and in another order of "
        f"warps and blocks, disagree: {spec.name}[{index}], and {count - 1} elements near it"
    )
    return StageResult(
        outcome=Outcome.NONDETERMINISTIC, reason=reason,
        diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
    )  # fmt: skip


def incomplete(spec: TensorSpec, share: float) -> StageResult:
    """Return the failure of an output of which sampled blocks write too small a share."""
    reason = (
        f"the sampled blocks write only {100 * share:.0f} % of {spec.name} at full dimensions: "
        "this launch cannot be timed by sampling"
    )
    return StageResult(
        outcome=Outcome.UNSUPPORTED, reason=reason,
        diagnostics=(Diagnostic(kind=NOT_WRITTEN, message=reason),),
    )  # fmt: skip


def says_too_little_written(failed: StageResult) -> bool:
    """Say whether a failure is `incomplete`: an estimate, which running more blocks may refute."""
    return bool(failed.diagnostics) and failed.diagnostics[0].kind == NOT_WRITTEN


def reads_unwritten(kernel: str, share: float) -> StageResult:
    """Return the failure of a kernel, or a copy, that reads what no launch writes."""
    words = (
        f"at full dimensions {'it' if kernel else 'a copy'} reads memory of which the launches "
        f"before it write only {100 * share:.0f} %: the rest holds anything"
    )
    kind = "unsupported" if share else "uninitialized_read"
    failed = judge(CaseReport(reports=[Finding(kind, words, kernel)]))
    assert failed is not None
    return failed


def joined_by_others(spec: TensorSpec, open_elements: int, joined: int) -> StageResult:
    """Return the failure of an output whose terms atomics join, of which too few blocks ran."""
    reason = (
        f"at full dimensions blocks join parts of {spec.name} by atomics, and all of them are too "
        f"much work to be simulated: of {joined} elements that some touched {open_elements} are "
        "not the answer, for want of the other blocks or by a fault; let fewer blocks join an "
        "element, and those lie along one axis of the grid, or measure it on a GPU"
    )
    return StageResult(
        outcome=Outcome.UNSUPPORTED, reason=reason,
        diagnostics=(Diagnostic(kind="not_compared", message=reason),),
    )  # fmt: skip


def mismatch(reason: str) -> StageResult:
    """Return the failure of a wrong answer."""
    return StageResult(
        outcome=Outcome.WRONG_ANSWER, reason=reason,
        diagnostics=(Diagnostic(kind="mismatch", message=reason),),
    )  # fmt: skip
