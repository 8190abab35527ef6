"""The whole loop on one screen: in-context reinforcement learning over CUDA kernels.

load_task → write_initial_cuda → profile_baseline → rollouts in parallel (Send)
    → evaluate_policy → analyze_performance_gap → update_parameters
    → rollouts of the next iteration | confirm_winner → verify_softly → report
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from ..nodes.common.randomness import generator
from ..nodes.gap_analysis.node import analyze_performance_gap
from ..nodes.initial_cuda.node import write_initial_cuda
from ..nodes.parameter_update.node import update_parameters
from ..nodes.policy_evaluation.node import evaluate_policy
from ..nodes.records import KernelPoint
from ..nodes.run.confirm_winner import confirm_winner
from ..nodes.run.load_task import load_task
from ..nodes.run.profile_baseline import profile_baseline
from ..nodes.run.report import report
from ..nodes.soft_verifier.node import verify_softly
from .rollout import graph as rollout_graph
from .state import OptimizeOutput, OptimizeRequest, OptimizeState, RolloutInput


async def rollout(state: RolloutInput, config: RunnableConfig) -> dict[str, Any]:
    """Run one trajectory; its report merges by id."""
    answer = await rollout_graph.ainvoke(state, config)
    trajectory = answer["trajectory"]
    return {"trajectories": {trajectory.id: trajectory}}


def fan_out(state: OptimizeState) -> list[Send]:
    """Send one rollout for each trajectory of the iteration, each with its own start."""
    return [
        Send(
            "rollout",
            RolloutInput(
                plan=state["plan"],
                summary=state["summary"],
                iteration=state["iteration"],
                rollout=number,
                knowledge_at=state["knowledge_at"],
                start_point=start_point(state, number),
            ),
        )
        for number in range(state["plan"].rollouts)
    ]


def start_point(state: OptimizeState, rollout: int) -> KernelPoint:
    """Return where a rollout begins: the first at the best so far, the others anywhere good.

    The others draw among all trajectories' bests and the initial kernel, faster ones more often,
    so that the search does not hang on one path.
    """
    if rollout == 0 or state["iteration"] == 0:
        return state["best"]
    points = {
        point.source_sha256: point
        for point in (
            state["initial"],
            *(trajectory.best for trajectory in state["trajectories"].values()),
        )
    }
    ranked = [points[sha256] for sha256 in sorted(points)]
    speed = np.array([1.0 / point.microseconds for point in ranked])
    stream = generator(state["plan"].seed, "start", state["iteration"], rollout)
    return ranked[int(stream.choice(len(ranked), p=speed / speed.sum()))]


def next_iteration(state: OptimizeState) -> list[Send] | str:
    """Fan out again until the iterations are done; then confirm the winner."""
    if state["iteration"] < state["plan"].iterations:
        return fan_out(state)
    return "confirm_winner"


def after_review(state: OptimizeState) -> Literal["confirm_winner", "report"]:
    """Report what stands; a vetoed kernel makes room for the next fastest."""
    review = state.get("soft_reviews", {}).get(state["confirmation"].point.evaluation_key)
    return "confirm_winner" if review is not None and review.vetoed else "report"


def build_graph() -> StateGraph[OptimizeState, None, OptimizeRequest, OptimizeOutput]:
    """Return the optimize graph, not compiled."""
    graph = StateGraph(OptimizeState, input_schema=OptimizeRequest, output_schema=OptimizeOutput)
    graph.add_node("load_task", load_task)
    graph.add_node("write_initial_cuda", write_initial_cuda)
    graph.add_node("profile_baseline", profile_baseline)
    graph.add_node("rollout", rollout)
    graph.add_node("evaluate_policy", evaluate_policy)
    graph.add_node("analyze_performance_gap", analyze_performance_gap)
    graph.add_node("update_parameters", update_parameters)
    graph.add_node("confirm_winner", confirm_winner)
    graph.add_node("verify_softly", verify_softly)
    graph.add_node("report", report)
    graph.add_edge(START, "load_task")
    graph.add_edge("load_task", "write_initial_cuda")
    graph.add_edge("write_initial_cuda", "profile_baseline")
    graph.add_conditional_edges("profile_baseline", fan_out, ["rollout"])
    graph.add_edge("rollout", "evaluate_policy")
    graph.add_edge("evaluate_policy", "analyze_performance_gap")
    graph.add_edge("analyze_performance_gap", "update_parameters")
    graph.add_conditional_edges("update_parameters", next_iteration, ["rollout", "confirm_winner"])
    graph.add_edge("confirm_winner", "verify_softly")
    graph.add_conditional_edges("verify_softly", after_review)
    graph.add_edge("report", END)
    return graph


graph = build_graph().compile(name="optimize")
