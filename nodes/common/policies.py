"""What each policy is: who answers in it, which settings it fixes, what its Judge may say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ...harness.errors import UserError
from ...tools.models.records import ROLES, Role
from ..records.plan import Policy, RunContext

Mode = Literal["correction", "optimisation"]

_ROUNDS: tuple[Role, ...] = ("initial_cuda", "coder", "soft_verifier")
_JUDGED: tuple[Role, ...] = (*_ROUNDS, "judge")
_LOOP: tuple[Role, ...] = tuple(role for role in ROLES if role not in ("coder", "judge"))


class Rules(NamedTuple):
    """One policy in figures."""

    graph: Policy
    """The policy whose graph it is: its own, or the one that it is a setting of."""
    roles: tuple[Role, ...]
    """Who answers in it."""
    fixes: Mapping[str, Any] = MappingProxyType({})
    """Settings that make it what it is, by name."""
    modes: frozenset[Mode] = frozenset()
    """What its Judge may say; it has none where this is empty."""
    remembers: bool = True
    """Whether a round starts from the last one's kernel; else each is a sample of its own."""


RULES: Mapping[Policy, Rules] = MappingProxyType(
    {
        "kernelblaster": Rules("kernelblaster", _LOOP),
        "no_memory": Rules("kernelblaster", _LOOP, {"memory": "off"}),
        "random": Rules("kernelblaster", _LOOP, {"choice": "random"}),
        "greedy": Rules("kernelblaster", _LOOP, {"choice": "greedy"}),
        "cycles_only": Rules("kernelblaster", _LOOP, {"counters": False}),
        "coder_judge": Rules(
            "coder_judge", _JUDGED, modes=frozenset({"correction", "optimisation"})
        ),
        "correction_only": Rules("correction_only", _JUDGED, modes=frozenset({"correction"})),
        "optimisation_only": Rules(
            "optimisation_only", _JUDGED, modes=frozenset({"optimisation"})
        ),
        "minimal": Rules("minimal", _ROUNDS),
        "zero_shot": Rules("zero_shot", _ROUNDS, {"rounds": 1, "repairs": 0}, remembers=False),
        "best_of_n": Rules("best_of_n", _ROUNDS, remembers=False),
    }
)


def by_rounds(policy: Policy) -> bool:
    """Say whether a policy writes one candidate a round, instead of sending off rollouts."""
    return RULES[policy].graph != "kernelblaster"


def reads_knowledge(context: RunContext) -> bool:
    """Say whether what a run does depends on the knowledge base, and so on the runs before it."""
    return not by_rounds(context.policy) and context.memory != "off"


def reads_kernels(context: RunContext) -> bool:
    """Say whether a run begins with what earlier ones found: not where it is told apart by that it
    remembers nothing, or chooses by nothing."""
    return reads_knowledge(context) and context.memory != "seed" and context.choice != "random"


def loop_in_words(plan: RunContext) -> str:
    """Return how far a run goes at most, in words."""
    if by_rounds(plan.policy):
        return f"{plan.rounds} {'round' if plan.rounds == 1 else 'rounds'} of {plan.policy}"
    return f"{plan.iterations} iterations of {plan.rollouts} rollouts of {plan.steps} steps"


def editable(policy: Policy) -> tuple[str, ...]:
    """Return the loops of a policy whose length is not fixed."""
    loops = ("rounds",) if by_rounds(policy) else ("iterations", "rollouts", "steps")
    return tuple(name for name in loops if name not in RULES[policy].fixes)


def graph_name(policy: Policy) -> str:
    """Return the name under which a policy's graph is compiled and served."""
    followed = RULES[policy].graph
    return "optimize" if followed == "kernelblaster" else followed


def require_counted(policy: Policy, asked: Collection[str]) -> None:
    """Check that the loops whose length is asked for are those that the policy has.

    Raises:
        UserError: one is not.
    """
    counts = editable(policy)
    for name in ("iterations", "rollouts", "steps", "rounds"):
        if name in asked and name not in counts:
            flags = ", ".join(f"--{each}" for each in counts)
            rest = f"what it takes: {flags}" if flags else "it has no loop whose length is free"
            raise UserError(f"--{name}: the policy {policy} cannot be told that; {rest}")


def under_policy(context: RunContext) -> RunContext:
    """Return a context with the settings that its policy fixes.

    Raises:
        UserError: another value was asked for, or a question that the policy has no place for.
    """
    policy, fixes = context.policy, RULES[context.policy].fixes
    if by_rounds(policy) and "technique" in context.approve:
        raise UserError(
            f"--approve technique: the policy {policy} chooses none beforehand; ask for the plan "
            "or the winner"
        )
    if by_rounds(policy) and context.writer == "tools":
        raise UserError(f"--writer tools: the policy {policy} has no kernel writer")
    for name in ("memory", "choice", "gradient"):
        if by_rounds(policy) and getattr(context, name) != RunContext.model_fields[name].default:
            raise UserError(
                f"--{name}: the policy {policy} reads no knowledge base, writes none and chooses "
                "by none: there is nothing to leave out"
            )
    if by_rounds(policy) and not context.sweeps:
        raise UserError(f"--no-sweeps: the policy {policy} has none; leave it out")
    for name, value in fixes.items():
        asked = getattr(context, name)
        if asked not in (value, RunContext.model_fields[name].default):
            raise UserError(f"{name}={asked}: the policy {policy} is {name}={value}")
    return context.model_copy(update=dict(fixes))


def in_graph(context: RunContext, graph: Policy) -> RunContext:
    """Return the context of a run of one policy's graph, which stands for its own policy.

    Raises:
        UserError: it asks for a policy of another graph.
    """
    asked = context.policy
    if RULES[asked].graph == graph:
        return context
    if asked == RunContext.model_fields["policy"].default:
        return context.model_copy(update={"policy": graph})
    raise UserError(
        f"policy {asked} is another graph: ask the graph {graph_name(asked)}, or leave it out"
    )
