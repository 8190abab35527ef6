"""The whole loop on one screen: in-context reinforcement learning over CUDA kernels.

load_task → approve_plan → initial_cuda → profile_baseline → rollouts in parallel (Send)
    → reflect → policy_evaluation → gap_analysis → parameter_update → keep_lessons
    → rollouts of the next iteration | confirm_winner → soft_verifier → try_claims → approve_winner
    → unseen_shapes → report
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from ..nodes.common.stopping.caps import evaluations_left, rollouts_within, share_of
from ..nodes.common.stopping.standstill import one_of_many
from ..nodes.common.stopping.until import end_of_search
from ..nodes.gap_analysis.node import gap_analysis
from ..nodes.parameter_update.node import parameter_update
from ..nodes.policy_evaluation.node import policy_evaluation
from ..nodes.records.plan import Settings
from ..nodes.run.approval.keep_lessons import keep_lessons
from ..nodes.run.beginning.lineage import of_one_line
from ..nodes.run.search.reflect import reflect
from ..nodes.run.search.start_point import start_point
from .channels import sent
from .compiling import AgentGraph
from .frame import add_beginning, add_ending
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
    """Send one rollout for each trajectory of the iteration.

    Where few evaluations are left they are fewer, so that each can go on from its first step.
    """
    plan = state["plan"]
    left = evaluations_left(plan, state.get("evaluations", 0))
    parts = plan.rollouts if left is None else rollouts_within(left, plan)
    return [
        Send(
            "rollout",
            Departure(
                plan=plan,
                summary=state["summary"],
                iteration=state["iteration"],
                rollout=number,
                knowledge_at=state["knowledge_at"],
                best=state["best"],
                evaluations=state.get("evaluations", 0),
                evaluations_left=None if left is None
                else share_of(left, parts, number),
            ),
        )
        for number in range(parts)
    ]


def next_iteration(state: OptimizeState) -> list[Send] | str:
    """Fan out, again until iterations or search are over; then confirm the winner."""
    plan, trajectories = state["plan"], state.get("trajectories", {}).values()
    over = any(trajectories) and all(trajectory.over for trajectory in trajectories)
    over = over or evaluations_left(plan, state.get("evaluations", 0)) == 0
    enough = end_of_search(plan, state["summary"], state["best"])
    if over or enough or state["iteration"] >= plan.iterations:
        return "confirm_winner"
    return fan_out(state)


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
    add_beginning(graph, "kernelblaster")
    graph.add_node("rollout", sent(Departure, one_of_many(of_one_line(rollout))))
    graph.add_node("reflect", of_one_line(reflect))
    graph.add_node("policy_evaluation", of_one_line(policy_evaluation))
    graph.add_node("gap_analysis", of_one_line(gap_analysis))
    graph.add_node("parameter_update", of_one_line(parameter_update))
    graph.add_node("keep_lessons", of_one_line(keep_lessons))
    following = ["rollout", "confirm_winner"]
    graph.add_conditional_edges("profile_baseline", next_iteration, following)
    graph.add_edge("rollout", "reflect")
    graph.add_edge("reflect", "policy_evaluation")
    graph.add_edge("policy_evaluation", "gap_analysis")
    graph.add_edge("gap_analysis", "parameter_update")
    graph.add_edge("parameter_update", "keep_lessons")
    graph.add_conditional_edges("keep_lessons", next_iteration, following)
    add_ending(graph)
    return graph


graph = build_graph().compile(name="optimize")
