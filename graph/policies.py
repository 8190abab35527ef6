"""From the name of a policy to the graph that follows it."""

from __future__ import annotations

import functools
from typing import Any

from ..nodes.common.policies import RULES, graph_name
from ..nodes.records.plan import Policy
from . import optimize
from .compiling import AgentGraph
from .rounds import build_rounds


def build_policy_graph(policy: Policy) -> AgentGraph[Any, Any, Any, Any]:
    """Return the graph that follows a policy, not compiled.

    Example:
        graph = build_policy_graph("minimal").compile(checkpointer=InMemorySaver())
    """
    followed = RULES[policy].graph
    return optimize.build_graph() if followed == "kernelblaster" else build_rounds(followed)


def policy_graph(policy: Policy) -> Any:
    """Return the graph that follows a policy, compiled without a checkpointer; made once."""
    return _compiled(RULES[policy].graph)


@functools.cache
def _compiled(policy: Policy) -> Any:
    if policy == "kernelblaster":
        return optimize.graph
    return build_rounds(policy).compile(name=graph_name(policy))
