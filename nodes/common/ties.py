"""Which agents ask a model by themselves, and which together: where a rule is clear it stands."""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.knowledge.states.matching import Near, tied
from ...memory.records.states import PerformanceState
from ...tools.models.records import BUILTIN, Role
from ..records.observations import StateChoice
from ..records.plan import RunPlan

DECIDING: tuple[Role, ...] = ("optimization_proposer", "optimization_selector")
"""Asked together at a step, with the state selector where a kernel's state is open."""
REFLECTING: tuple[Role, ...] = ("policy_evaluation", "gap_analysis", "parameter_update")
"""Asked together after an iteration."""


def decides_together(plan: RunPlan, *more: Role) -> bool:
    """Say whether one call answers for those that decide on a step, and for more."""
    return _one_model(plan, (*DECIDING, *more))


def reflects_together(plan: RunPlan) -> bool:
    """Say whether one call answers for those that look back on an iteration."""
    return plan.learns and _one_model(plan, REFLECTING)


def _one_model(plan: RunPlan, roles: Sequence[Role]) -> bool:
    names = {plan.models.model_of(role) for role in roles}
    return plan.agents == "compact" and len(names) == 1 and BUILTIN not in names


def asks_model(
    plan: RunPlan, role: Role, near: Sequence[Near], before: StateChoice | None = None,
    signature: Sequence[float] = (),
) -> bool:  # fmt: skip
    """Say whether a role's model is asked about a kernel's state.

    Of compact agents one is asked, the selector where it has a model, and nobody again of the
    kernel that the step before had the answer of, nor of states that are as near as those then.

    Args:
        plan: says which model, and when models are asked.
        role: whose model.
        near: the states nearest to the kernel, by the rule.
        before: the choice of the step before.
        signature: the kernel's.
    """
    if plan.models.model_of(role) == BUILTIN:
        return False
    if plan.agents == "full":
        return True
    if role == "state_extractor" and plan.models.model_of("state_selector") != BUILTIN:
        return False
    return len(tied(near)) != 1 and answered_before(near, before, signature) is None


def answered_before(
    near: Sequence[Near], before: StateChoice | None, signature: Sequence[float] = ()
) -> tuple[PerformanceState, float] | None:
    """Return the state that a model chose a step before, and how far it is away; None where it was
    asked neither about this kernel nor about the very states that are as near now."""
    if before is None:
        return None
    if before.asked_of and before.asked_of == tuple(signature):
        return before.state, before.distance
    alike = {each.state.id: each for each in tied(near)}
    if len(alike) < 2 or set(before.among) != alike.keys() or before.state.id not in alike:
        return None
    same = alike[before.state.id]
    return same.state, same.away
