"""What every policy begins and ends with: the first kernel measured; the winner confirmed.

load_task → approve_plan → initial_cuda → profile_baseline → ...
    ... → confirm_winner → soft_verifier → try_claims → approve_winner → unseen_shapes → report
"""

from __future__ import annotations

from typing import Any, Literal

from langgraph.graph import END, START

from ..nodes.records.plan import Policy
from ..nodes.records.reviews import SoftReview
from ..nodes.run.approval.approve_plan import approve_plan
from ..nodes.run.approval.approve_winner import approve_winner
from ..nodes.run.beginning.lineage import of_one_line
from ..nodes.run.beginning.load_task import load_task_of
from ..nodes.run.beginning.profile_baseline import profile_baseline
from ..nodes.run.ending.confirm_winner import confirm_winner
from ..nodes.run.ending.report import report
from ..nodes.run.ending.unseen_shapes import unseen_shapes
from ..nodes.soft_verifier.node import soft_verifier, try_winner
from .compiling import AgentGraph
from .first_kernel import initial_cuda
from .state import SearchState


def after_review(
    state: SearchState,
) -> Literal["try_claims", "confirm_winner", "approve_winner"]:
    """Run the inputs that the review claims, if any; go on with what stands."""
    review = _review(state)
    return "try_claims" if review is not None and review.is_open else after_claims(state)


def after_claims(state: SearchState) -> Literal["confirm_winner", "approve_winner"]:
    """Go on with what stands; a vetoed kernel makes room for the next fastest."""
    return "confirm_winner" if _vetoed(state) else "approve_winner"


def after_approval(state: SearchState) -> Literal["confirm_winner", "unseen_shapes"]:
    """Go on with what stands; a rejected kernel makes room for the next fastest."""
    return "confirm_winner" if _vetoed(state) else "unseen_shapes"


def _vetoed(state: SearchState) -> bool:
    review = _review(state)
    return review is not None and review.vetoed


def _review(state: SearchState) -> SoftReview | None:
    return state.get("soft_reviews", {}).get(state["confirmation"].point.evaluation_key)


def add_beginning(graph: AgentGraph[Any, Any, Any, Any], policy: Policy) -> None:
    """Add the nodes up to `profile_baseline`, from which a policy goes on."""
    graph.add_node("load_task", load_task_of(policy))
    graph.add_node("approve_plan", of_one_line(approve_plan))
    graph.add_node("initial_cuda", of_one_line(initial_cuda))
    graph.add_node("profile_baseline", of_one_line(profile_baseline))
    graph.add_edge(START, "load_task")
    graph.add_edge("load_task", "approve_plan")
    graph.add_edge("approve_plan", "initial_cuda")
    graph.add_edge("initial_cuda", "profile_baseline")


def add_ending(graph: AgentGraph[Any, Any, Any, Any]) -> None:
    """Add the nodes from `confirm_winner` on."""
    graph.add_node("confirm_winner", of_one_line(confirm_winner))
    graph.add_node("soft_verifier", of_one_line(soft_verifier))
    graph.add_node("try_claims", of_one_line(try_winner))
    graph.add_node("approve_winner", of_one_line(approve_winner))
    graph.add_node("unseen_shapes", of_one_line(unseen_shapes))
    graph.add_node("report", of_one_line(report, ends=True))
    graph.add_edge("confirm_winner", "soft_verifier")
    graph.add_conditional_edges("soft_verifier", after_review)
    graph.add_conditional_edges("try_claims", after_claims)
    graph.add_conditional_edges("approve_winner", after_approval)
    graph.add_edge("unseen_shapes", "report")
    graph.add_edge("report", END)
