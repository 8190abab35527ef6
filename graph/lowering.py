"""The lowering graph: write → compile → verify → profile; a failure goes back to write.

A writer with tools has them called in between: write → use_tools → write, so many times at most.
Where a model is soft verifier, it reads what a model wrote before that is measured:
verify → review → try_claims → verify; what an input that it claims shows wrong fails there.
"""

from __future__ import annotations

from typing import Literal

from langgraph.graph import END, START

from ..harness.records.outcomes import Outcome
from ..nodes.common.history.authors import is_built_in
from ..nodes.kernel_writer.node import kernel_writer
from ..nodes.kernel_writer.tool_rounds import use_tools
from ..nodes.records.lowering import evaluated_sources
from ..nodes.run.search.attempt_stages import (
    compile_candidate,
    conclude_lowering,
    profile_candidate,
    verify_candidate,
)
from ..nodes.soft_verifier.candidates import review_attempt, reviews, try_attempt
from .compiling import AgentGraph
from .state import LoweringOutput, LoweringState

# Where to go next. LangGraph would have a thread say it where these were plain functions.


async def after_write(state: LoweringState) -> Literal["use_tools", "compile", "conclude"]:
    """Call the tools that the writer asks for; else compile what it wrote, if anything."""
    rounds = state.get("rounds", ())
    if rounds and rounds[-1].answers_sha256 is None:
        return "use_tools"
    return "compile" if _newest_has_source(state) else "conclude"


async def after_compile(state: LoweringState) -> Literal["verify", "write", "conclude"]:
    """Verify what compiled; otherwise repair while repairs are left."""
    return "verify" if _passed(state) else _repair(state)


async def after_verify(state: LoweringState) -> Literal["review", "profile", "write", "conclude"]:
    """Review and profile what is correct; otherwise repair while repairs are left."""
    if not _passed(state):
        return _repair(state)
    newest, review = state["attempts"][len(state["attempts"]) - 1], state.get("review")
    read = review is not None and review.source_sha256 == newest.source_sha256
    asks = reviews(state["plan"]) and not is_built_in(newest.author)
    return "review" if asks and not read else "profile"


async def after_review(state: LoweringState) -> Literal["try_claims", "profile"]:
    """Run the inputs that a review claims, if any."""
    review = state.get("review")
    return "try_claims" if review is not None and review.is_open else "profile"


async def after_claims(state: LoweringState) -> Literal["verify", "profile"]:
    """Verify again what an input has shown wrong: that is a case now."""
    review = state.get("review")
    return "verify" if review is not None and review.is_wrong else "profile"


async def after_profile(state: LoweringState) -> Literal["write", "conclude"]:
    """Conclude a measured candidate; otherwise repair while repairs are left."""
    return "conclude" if _passed(state) else _repair(state)


def _newest_has_source(state: LoweringState) -> bool:
    return state["attempts"][len(state["attempts"]) - 1].source_sha256 is not None


def _passed(state: LoweringState) -> bool:
    return state["attempts"][len(state["attempts"]) - 1].outcome is Outcome.PASSED


def _repair(state: LoweringState) -> Literal["write", "conclude"]:
    left = state.get("evaluations_left")
    spent = evaluated_sources(state["attempts"].values(), state.get("rounds", ()))
    repairs_left = len(state["attempts"]) <= state["plan"].repairs
    may = repairs_left and (left is None or len(spent) < left)
    return "write" if may else "conclude"


def build_graph() -> AgentGraph[LoweringState, None, LoweringState, LoweringOutput]:
    """Return the lowering graph, not compiled."""
    graph = AgentGraph(LoweringState, output_schema=LoweringOutput)
    graph.add_node("write", kernel_writer)
    graph.add_node("use_tools", use_tools)
    graph.add_node("compile", compile_candidate)
    graph.add_node("verify", verify_candidate)
    graph.add_node("review", review_attempt)
    graph.add_node("try_claims", try_attempt)
    graph.add_node("profile", profile_candidate)
    graph.add_node("conclude", conclude_lowering)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", after_write)
    graph.add_edge("use_tools", "write")
    graph.add_conditional_edges("compile", after_compile)
    graph.add_conditional_edges("verify", after_verify)
    graph.add_conditional_edges("review", after_review)
    graph.add_conditional_edges("try_claims", after_claims)
    graph.add_conditional_edges("profile", after_profile)
    graph.add_edge("conclude", END)
    return graph


graph = build_graph().compile(name="lowering")
