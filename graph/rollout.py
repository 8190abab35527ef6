"""The rollout graph: one trajectory of states and techniques, each step on the NEW profile."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START

from ..nodes.common.stopping.caps import newly_evaluated
from ..nodes.common.ties import decides_together
from ..nodes.optimization_proposer.node import optimization_proposer
from ..nodes.optimization_selector.node import optimization_selector
from ..nodes.records.choices import TechniqueChoice
from ..nodes.records.plan import RunPlan
from ..nodes.records.trajectories import Trajectory
from ..nodes.run.approval.approve_technique import Reads, approve_technique, wanted_technique
from ..nodes.run.search.decide import decide
from ..nodes.run.search.record_step import record_step
from ..nodes.run.search.sweep import sweep
from ..nodes.state_extractor.node import state_extractor
from ..nodes.state_selector.node import state_selector
from .compiling import AgentGraph
from .lowering import graph as lowering
from .state import LoweringState, RolloutInput, RolloutOutput, RolloutState


async def begin(state: RolloutInput) -> dict[str, Any]:
    """Stand at the start: counters set here, because a reused thread keeps its old state."""
    start = state["start_point"]
    return {
        "current": start,
        "best": start,
        "step": 0,
        "found_states": (),
        "described": (),
        "kept": (),
        "rejected": (),
        "ended": "",
        "over": False,
        "choice": None,
        "decided": None,
        "evaluations_left": state.get("evaluations_left"),
    }


async def lower(state: RolloutState, config: RunnableConfig) -> dict[str, Any]:
    """Hand the chosen technique to the lowering graph."""
    choice = await wanted_technique(cast(Reads, state))
    request: LoweringState = {
        "plan": state["plan"],
        "summary": state["summary"],
        "parent": state["current"],
        "choice": choice,
        "state_choice": state["state_choice"],
        "knowledge_at": state["knowledge_at"],
        "place": (state["iteration"], state["rollout"], state["step"]),
        "attempts": {},
        "rounds": (),
        "review": None,
        "evaluations_left": state["evaluations_left"],
    }
    answer = await lowering.ainvoke(request, config)
    result, left = answer["result"], state["evaluations_left"]
    if left is not None:
        left -= await newly_evaluated(state["plan"], result.sources, state.get("evaluations", 0))
    return {"choice": choice, "result": result, "evaluations_left": left}


async def finish(state: RolloutState) -> dict[str, Any]:
    """Report the trajectory."""
    iteration, rollout = state["iteration"], state["rollout"]
    return {
        "trajectory": Trajectory(
            id=f"{iteration}.{rollout}",
            iteration=iteration,
            rollout=rollout,
            best=state["best"],
            ended=state["ended"],
            over=state["over"],
        )
    }


# Where to go next. LangGraph would have a thread say it where these were plain functions, and reads
# for each what its parameter names.


class Course(TypedDict, total=False):
    """What says where a trajectory goes on."""

    plan: RunPlan
    choice: TechniqueChoice | None
    ended: str


async def after_observation(state: Course) -> Literal["decide", "state_selector", "finish"]:
    """Decide what to do about what was seen, at once or one after the other; finish where the
    search ended first."""
    if state["ended"]:
        return "finish"
    return "decide" if decides_together(state["plan"]) else "state_selector"


async def after_selection(state: Course) -> Literal["approve_technique", "finish"]:
    """Go on with the choice; finish when nothing was left to choose."""
    return "approve_technique" if state.get("choice") is not None else "finish"


async def after_approval(state: Course) -> Literal["lower", "optimization_selector"]:
    """Lower the choice; a rejected one makes room for another."""
    return "lower" if state.get("choice") is not None else "optimization_selector"


async def after_step(state: Course) -> Literal["state_extractor", "finish"]:
    """Take the next state from the new profile until the trajectory is over."""
    return "finish" if state["ended"] else "state_extractor"


def build_graph() -> AgentGraph[RolloutState, None, RolloutInput, RolloutOutput]:
    """Return the rollout graph, not compiled."""
    graph = AgentGraph(RolloutState, input_schema=RolloutInput, output_schema=RolloutOutput)
    graph.add_node("begin", begin)
    graph.add_node("state_extractor", state_extractor)
    graph.add_node("decide", decide)
    graph.add_node("state_selector", state_selector)
    graph.add_node("optimization_proposer", optimization_proposer)
    graph.add_node("sweep", sweep)
    graph.add_node("optimization_selector", optimization_selector)
    graph.add_node("approve_technique", approve_technique)
    graph.add_node("lower", lower)
    graph.add_node("record_step", record_step)
    graph.add_node("finish", finish)
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "state_extractor")
    graph.add_conditional_edges("state_extractor", after_observation)
    graph.add_edge("decide", "state_selector")
    graph.add_edge("state_selector", "optimization_proposer")
    graph.add_edge("optimization_proposer", "sweep")
    graph.add_edge("sweep", "optimization_selector")
    graph.add_conditional_edges("optimization_selector", after_selection)
    graph.add_conditional_edges("approve_technique", after_approval)
    graph.add_edge("lower", "record_step")
    graph.add_conditional_edges("record_step", after_step)
    graph.add_edge("finish", END)
    return graph


graph = build_graph().compile(name="rollout")
