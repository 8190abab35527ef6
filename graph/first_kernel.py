"""The first kernel's graph: write → review → try_claims; what is wrong goes back to a model.

A person's kernel, or a built-in one, that an input shows wrong is refused when it is measured.
"""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START

from ..nodes.initial_cuda.node import initial_cuda as write
from ..nodes.records.plan import RunPlan
from ..nodes.records.task import TaskSummary
from ..nodes.soft_verifier.candidates import review_first, try_first
from .compiling import AgentGraph
from .state import FirstKernelInput, FirstKernelOutput, FirstKernelState


def after_review(state: FirstKernelState) -> Literal["try_claims", "__end__"]:
    """Run the inputs that a review claims, if any."""
    review = state.get("review")
    return "try_claims" if review is not None and review.is_open else "__end__"


def after_claims(state: FirstKernelState) -> Literal["write", "__end__"]:
    """Have a model mend what an input has shown wrong."""
    review, plan = state.get("review"), state["plan"]
    by_model = state["initial_author"] == plan.models.model_of("initial_cuda")
    return "write" if review is not None and review.is_wrong and by_model else "__end__"


def build_graph() -> AgentGraph[FirstKernelState, None, FirstKernelInput, FirstKernelOutput]:
    """Return the first kernel's graph, not compiled."""
    graph = AgentGraph(
        FirstKernelState, input_schema=FirstKernelInput, output_schema=FirstKernelOutput
    )
    graph.add_node("write", write)
    graph.add_node("review", review_first)
    graph.add_node("try_claims", try_first)
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges("review", after_review)
    graph.add_conditional_edges("try_claims", after_claims)
    return graph


graph = build_graph().compile(name="first_kernel")


async def initial_cuda(state: dict[str, Any], config: RunnableConfig) -> dict[str, Any]:
    """Have the first kernel written and read."""
    plan: RunPlan = state["plan"]
    summary: TaskSummary = state["summary"]
    return dict(await graph.ainvoke({"plan": plan, "summary": summary}, config))
