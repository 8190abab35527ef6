"""Policies that write one candidate a round: with a Judge (CudaForge) or without.

profile_baseline → begin_rounds → coder → evaluate_candidate → record_round → judge → coder
    → ... at most `rounds` times → confirm_winner
"""

from __future__ import annotations

from typing import Any, Literal

from ..nodes.coder.node import coder
from ..nodes.records import Policy, Settings
from ..nodes.run.lineage import of_one_line
from ..nodes.run.rounds import begin_rounds, evaluate_candidate, record_round
from .compiling import AgentGraph
from .frame import add_beginning, add_ending
from .state import OptimizeInput, OptimizeOutput, RoundsState

Graph = AgentGraph[RoundsState, Any, OptimizeInput, OptimizeOutput]


def after_round(state: RoundsState) -> Literal["coder", "confirm_winner"]:
    """Write another candidate while rounds are left."""
    return "coder" if _goes_on(state) else "confirm_winner"


def _goes_on(state: RoundsState) -> bool:
    return state["round"] < state["plan"].rounds and not state["ended"]


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
    graph.add_node("evaluate_candidate", of_one_line(evaluate_candidate))
    graph.add_node("record_round", of_one_line(record_round))
    graph.add_edge("profile_baseline", "begin_rounds")
    graph.add_edge("coder", "evaluate_candidate")
    graph.add_edge("evaluate_candidate", "record_round")
    graph.add_edge("begin_rounds", "coder")
    graph.add_conditional_edges("record_round", after_round)
    add_ending(graph)
    return graph
