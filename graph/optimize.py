"""The whole loop on one screen: in-context reinforcement learning over CUDA kernels.

load_task → approve_plan → initial_cuda → profile_baseline → rollouts in parallel (Send)
    → policy_evaluation → gap_analysis → parameter_update → keep_lessons
    → rollouts of the next iteration | confirm_winner → soft_verifier → approve_winner → report
"""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START
from langgraph.types import Send

from ..nodes.common.standstill import one_of_many
from ..nodes.common.until import end_of_search
from ..nodes.gap_analysis.node import gap_analysis
from ..nodes.initial_cuda.node import initial_cuda
from ..nodes.parameter_update.node import parameter_update
from ..nodes.policy_evaluation.node import policy_evaluation
from ..nodes.records import Settings
from ..nodes.run.approve_plan import approve_plan
from ..nodes.run.approve_winner import approve_winner
from ..nodes.run.confirm_winner import confirm_winner
from ..nodes.run.keep_lessons import keep_lessons
from ..nodes.run.lineage import of_one_line
from ..nodes.run.load_task import load_task
from ..nodes.run.profile_baseline import profile_baseline
from ..nodes.run.report import report
from ..nodes.run.start_point import start_point
from ..nodes.soft_verifier.node import soft_verifier
from .channels import sent
from .compiling import AgentGraph
from .rollout import graph as rollout_graph
from .state import Departure, OptimizeInput, OptimizeOutput, OptimizeState


async def rollout(state: Departure, config: RunnableConfig) -> dict[str, Any]:
    """Run one trajectory; its report merges by id."""
    given = {key: value for key, value in state.items() if key != "best"}
    begins = given | {"start_point": await start_point(state)}
    answer = await rollout_graph.ainvoke(begins, config)
    trajectory = answer["trajectory"]
    return {"trajectories": {trajectory.id: trajectory}}


def fan_out(state: OptimizeState) -> list[Send]:
    """Send one rollout for each trajectory of the iteration."""
    return [
        Send(
            "rollout",
            Departure(
                plan=state["plan"],
                summary=state["summary"],
                iteration=state["iteration"],
                rollout=number,
                knowledge_at=state["knowledge_at"],
                best=state["best"],
            ),
        )
        for number in range(state["plan"].rollouts)
    ]


def next_iteration(state: OptimizeState) -> list[Send] | str:
    """Fan out, again until the iterations are done or the best is fast enough; then confirm it."""
    enough = end_of_search(state["plan"], state["summary"], state["best"])
    if state["iteration"] < state["plan"].iterations and not enough:
        return fan_out(state)
    return "confirm_winner"


def after_review(state: OptimizeState) -> Literal["confirm_winner", "approve_winner"]:
    """Go on with what stands; a vetoed kernel makes room for the next fastest."""
    return "confirm_winner" if _vetoed(state) else "approve_winner"


def after_approval(state: OptimizeState) -> Literal["confirm_winner", "report"]:
    """Report what stands; a rejected kernel makes room for the next fastest."""
    return "confirm_winner" if _vetoed(state) else "report"


def _vetoed(state: OptimizeState) -> bool:
    review = state.get("soft_reviews", {}).get(state["confirmation"].point.evaluation_key)
    return review is not None and review.vetoed


def build_graph() -> AgentGraph[OptimizeState, Any, OptimizeInput, OptimizeOutput]:
    """Return the optimize graph, not compiled.

    Example:
        graph = kernelblaster.build_optimize_graph().compile(checkpointer=InMemorySaver())
    """
    graph: AgentGraph[OptimizeState, Any, OptimizeInput, OptimizeOutput] = AgentGraph(
        OptimizeState,
        context_schema=Settings,
        input_schema=OptimizeInput,
        output_schema=OptimizeOutput,
    )
    graph.add_node("load_task", load_task)
    graph.add_node("approve_plan", of_one_line(approve_plan))
    graph.add_node("initial_cuda", of_one_line(initial_cuda))
    graph.add_node("profile_baseline", of_one_line(profile_baseline))
    graph.add_node("rollout", sent(Departure, one_of_many(of_one_line(rollout))))
    graph.add_node("policy_evaluation", of_one_line(policy_evaluation))
    graph.add_node("gap_analysis", of_one_line(gap_analysis))
    graph.add_node("parameter_update", of_one_line(parameter_update))
    graph.add_node("keep_lessons", of_one_line(keep_lessons))
    graph.add_node("confirm_winner", of_one_line(confirm_winner))
    graph.add_node("soft_verifier", of_one_line(soft_verifier))
    graph.add_node("approve_winner", of_one_line(approve_winner))
    graph.add_node("report", of_one_line(report, ends=True))
    graph.add_edge(START, "load_task")
    graph.add_edge("load_task", "approve_plan")
    graph.add_edge("approve_plan", "initial_cuda")
    graph.add_edge("initial_cuda", "profile_baseline")
    following = ["rollout", "confirm_winner"]
    graph.add_conditional_edges("profile_baseline", next_iteration, following)
    graph.add_edge("rollout", "policy_evaluation")
    graph.add_edge("policy_evaluation", "gap_analysis")
    graph.add_edge("gap_analysis", "parameter_update")
    graph.add_edge("parameter_update", "keep_lessons")
    graph.add_conditional_edges("keep_lessons", next_iteration, following)
    graph.add_edge("confirm_winner", "soft_verifier")
    graph.add_conditional_edges("soft_verifier", after_review)
    graph.add_conditional_edges("approve_winner", after_approval)
    graph.add_edge("report", END)
    return graph


graph = build_graph().compile(name="optimize")
