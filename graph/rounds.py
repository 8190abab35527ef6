"""Policies that write one candidate a round: with a Judge (CudaForge) or without.

profile_baseline → begin_rounds → coder → review_candidate → try_candidate → evaluate_candidate
    → record_round → judge → coder
    → ... at most `rounds` times, or until the best is fast enough → confirm_winner
"""

from __future__ import annotations

from typing import Any, Literal

from ..nodes.coder.node import coder
from ..nodes.common.policies import RULES
from ..nodes.common.stopping.until import end_of_search
from ..nodes.judge.node import judge
from ..nodes.records.plan import Policy, Settings
from ..nodes.run.beginning.lineage import of_one_line
from ..nodes.run.search.rounds import begin_rounds, evaluate_candidate, record_round
from ..nodes.soft_verifier.candidates import review_candidate, try_candidate
from .compiling import AgentGraph
from .frame import add_beginning, add_ending
from .state import OptimizeInput, OptimizeOutput, RoundsState

Graph = AgentGraph[RoundsState, Any, OptimizeInput, OptimizeOutput]


def after_round(state: RoundsState) -> Literal["coder", "confirm_winner"]:
    """Write another candidate while rounds are left."""
    return "coder" if _goes_on(state) else "confirm_winner"


def to_the_judge(state: RoundsState) -> Literal["coder", "judge", "confirm_winner"]:
    """Have the last candidate judged while rounds are left; without one, have one written."""
    if not _goes_on(state):
        return "confirm_winner"
    return "coder" if state["latest"] is None else "judge"


def after_judge(state: RoundsState) -> Literal["coder", "confirm_winner"]:
    """Write what the Judge advises, if anything."""
    return "confirm_winner" if state["ended"] else "coder"


def after_review(state: RoundsState) -> Literal["try_candidate", "evaluate_candidate"]:
    """Run the inputs that a review claims, if any."""
    review = state.get("review")
    return "try_candidate" if review is not None and review.is_open else "evaluate_candidate"


def _goes_on(state: RoundsState) -> bool:
    enough = end_of_search(state["plan"], state["summary"], state["best"])
    return state["round"] < state["plan"].rounds and not state["ended"] and not enough


def build_rounds(policy: Policy) -> Graph:
    """Return the graph of a policy by rounds, not compiled."""
    graph: Graph = AgentGraph(
        RoundsState,
        context_schema=Settings,
        input_schema=OptimizeInput,
        output_schema=OptimizeOutput,
    )
    add_beginning(graph, policy)
    graph.add_node("begin_rounds", of_one_line(begin_rounds))
    graph.add_node("coder", of_one_line(coder))
    graph.add_node("review_candidate", of_one_line(review_candidate))
    graph.add_node("try_candidate", of_one_line(try_candidate))
    graph.add_node("evaluate_candidate", of_one_line(evaluate_candidate))
    graph.add_node("record_round", of_one_line(record_round))
    graph.add_edge("profile_baseline", "begin_rounds")
    graph.add_edge("coder", "review_candidate")
    graph.add_conditional_edges("review_candidate", after_review)
    graph.add_edge("try_candidate", "evaluate_candidate")
    graph.add_edge("evaluate_candidate", "record_round")
    if RULES[policy].modes:
        graph.add_node("judge", of_one_line(judge))
        graph.add_conditional_edges("begin_rounds", to_the_judge)
        graph.add_conditional_edges("record_round", to_the_judge)
        graph.add_conditional_edges("judge", after_judge)
    else:
        graph.add_conditional_edges("begin_rounds", after_round)
        graph.add_conditional_edges("record_round", after_round)
    add_ending(graph)
    return graph
