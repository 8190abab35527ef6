"""The drawing of the graphs is the papers' figure: nodes and arrows as a set."""

from __future__ import annotations

import importlib
import json
from typing import Any

from places import ROOT

from kernelblaster.graph import first_kernel, lowering, optimize, rollout
from kernelblaster.graph.compiling import RECURSION_LIMIT
from kernelblaster.graph.policies import policy_graph
from kernelblaster.nodes.kernel_writer.tool_rounds import MOST_ROUNDS
from kernelblaster.nodes.records.plan import LONGEST_LOOP

LOOP = {
    "rollout", "reflect", "policy_evaluation", "gap_analysis", "parameter_update", "keep_lessons",
}  # fmt: skip
"""Nodes of `optimize` that no policy by rounds has."""


def edges(graph: Any) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.get_graph().edges}


def test_the_longest_loops_end_before_the_limit_of_steps() -> None:
    """An iteration takes six steps of its graph, a rollout's step nine, an attempt seven at most
    (with a review and its claims), a round of tools two."""
    assert 9 * LONGEST_LOOP + 2 * MOST_ROUNDS + 100 < RECURSION_LIMIT


def test_optimize_is_the_outer_loop() -> None:
    assert edges(optimize.graph) == {
        ("__start__", "load_task"),
        ("load_task", "approve_plan"),
        ("approve_plan", "initial_cuda"),
        ("initial_cuda", "profile_baseline"),
        ("profile_baseline", "rollout"),
        ("profile_baseline", "confirm_winner"),
        ("rollout", "reflect"),
        ("reflect", "policy_evaluation"),
        ("policy_evaluation", "gap_analysis"),
        ("gap_analysis", "parameter_update"),
        ("parameter_update", "keep_lessons"),
        ("keep_lessons", "rollout"),
        ("keep_lessons", "confirm_winner"),
        ("confirm_winner", "soft_verifier"),
        ("soft_verifier", "try_claims"),
        ("soft_verifier", "confirm_winner"),
        ("soft_verifier", "approve_winner"),
        ("try_claims", "confirm_winner"),
        ("try_claims", "approve_winner"),
        ("approve_winner", "confirm_winner"),
        ("approve_winner", "unseen_shapes"),
        ("unseen_shapes", "report"),
        ("report", "__end__"),
    }


def test_policies_by_rounds_have_a_judge_or_none() -> None:
    between = {
        ("profile_baseline", "begin_rounds"),
        ("coder", "review_candidate"),
        ("review_candidate", "try_candidate"),
        ("review_candidate", "evaluate_candidate"),
        ("try_candidate", "evaluate_candidate"),
        ("evaluate_candidate", "record_round"),
        ("begin_rounds", "confirm_winner"),
        ("record_round", "confirm_winner"),
    }
    alone = {("begin_rounds", "coder"), ("record_round", "coder")}
    judged = alone | {
        ("begin_rounds", "judge"),
        ("record_round", "judge"),
        ("judge", "coder"),
        ("judge", "confirm_winner"),
    }
    frame = {edge for edge in edges(optimize.graph) if not {*edge} & LOOP}
    frame -= {("profile_baseline", "confirm_winner")}
    assert edges(policy_graph("minimal")) == frame | between | alone
    assert edges(policy_graph("coder_judge")) == frame | between | judged


def test_rollout_is_the_trajectory() -> None:
    assert edges(rollout.graph) == {
        ("__start__", "begin"),
        ("begin", "state_extractor"),
        ("state_extractor", "decide"),
        ("decide", "state_selector"),
        ("state_extractor", "state_selector"),
        ("state_extractor", "finish"),
        ("state_selector", "optimization_proposer"),
        ("optimization_proposer", "sweep"),
        ("sweep", "optimization_selector"),
        ("optimization_selector", "approve_technique"),
        ("optimization_selector", "finish"),
        ("approve_technique", "lower"),
        ("approve_technique", "optimization_selector"),
        ("lower", "record_step"),
        ("record_step", "state_extractor"),
        ("record_step", "finish"),
        ("finish", "__end__"),
    }


def test_routers_of_a_rollout_read_no_more_than_they_need() -> None:
    schemas = {
        branch.input_schema for each in rollout.graph.builder.branches.values()
        for branch in each.values()
    }  # fmt: skip
    assert schemas == {rollout.Course}


def test_lowering_goes_back_to_write_with_each_failure() -> None:
    assert edges(lowering.graph) == {
        ("__start__", "write"),
        ("write", "compile"),
        ("write", "conclude"),
        ("write", "use_tools"),
        ("use_tools", "write"),
        ("compile", "verify"),
        ("compile", "write"),
        ("compile", "conclude"),
        ("verify", "review"),
        ("review", "try_claims"),
        ("review", "profile"),
        ("try_claims", "verify"),
        ("try_claims", "profile"),
        ("verify", "profile"),
        ("verify", "write"),
        ("verify", "conclude"),
        ("profile", "write"),
        ("profile", "conclude"),
        ("conclude", "__end__"),
    }


def test_a_first_kernel_is_read_before_it_is_measured() -> None:
    assert edges(first_kernel.graph) == {
        ("__start__", "write"),
        ("write", "review"),
        ("review", "try_claims"),
        ("review", "__end__"),
        ("try_claims", "write"),
        ("try_claims", "__end__"),
    }


def test_graphs_compile_without_a_checkpointer_for_studio_and_parents() -> None:
    for graph in (optimize.graph, rollout.graph, lowering.graph, policy_graph("coder_judge")):
        assert graph.checkpointer is None


def test_langgraph_json_names_graphs_that_are_there() -> None:
    served = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
    for name, told in served.items():
        module, _, attribute = told["path"].partition(":")
        assert getattr(importlib.import_module(module), attribute).name == name
        assert told["description"].endswith(".")
