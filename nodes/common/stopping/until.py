"""Whether a search may end: a share of the speed of light was asked for, and is reached."""

from __future__ import annotations

from ...records.kernels import KernelPoint
from ...records.plan import RunPlan
from ...records.task import TaskSummary


def end_of_search(plan: RunPlan, summary: TaskSummary, best: KernelPoint) -> str:
    """Return in words that the best kernel reaches the share of the bound that was asked for.

    Empty where it does not, or where nothing was asked for.
    """
    if plan.until is None or not summary.bound_us:
        return ""
    share = summary.bound_us / best.microseconds
    if share < plan.until:
        return ""
    return (
        f"the search ended at {best.microseconds:.2f} us: {share:.1%} of the speed of light, "
        f"{plan.until:.0%} were asked for"
    )
