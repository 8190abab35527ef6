"""Whether a kernel's state is asked of a model: where the rule is clear, it stands."""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.knowledge.states.matching import Near, tied
from ...tools.models.records import BUILTIN, Role
from ..records.plan import RunPlan


def asks_model(plan: RunPlan, role: Role, near: Sequence[Near]) -> bool:
    """Say whether a role's model is asked about a kernel's state.

    Args:
        plan: says which model, and when models are asked.
        role: whose model.
        near: the states nearest to the kernel, by the rule.
    """
    if plan.models.model_of(role) == BUILTIN:
        return False
    return plan.agents == "full" or len(tied(near)) != 1
