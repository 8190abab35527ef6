"""The drawing of the graphs is the papers' figure: nodes and arrows as a set."""

from __future__ import annotations

from typing import Any

from kernelblaster.graph import lowering, optimize, rollout


def edges(graph: Any) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.get_graph().edges}


def test_optimize_is_the_outer_loop() -> None:
    assert edges(optimize.graph) == {
        ("__start__", "load_task"),
        ("load_task", "write_initial_cuda"),
        ("write_initial_cuda", "profile_baseline"),
        ("profile_baseline", "rollout"),
        ("rollout", "evaluate_policy"),
        ("evaluate_policy", "analyze_performance_gap"),
        ("analyze_performance_gap", "update_parameters"),
        ("update_parameters", "rollout"),
        ("update_parameters", "confirm_winner"),
        ("confirm_winner", "verify_softly"),
        ("verify_softly", "confirm_winner"),
        ("verify_softly", "report"),
        ("report", "__end__"),
    }


def test_rollout_is_the_trajectory() -> None:
    assert edges(rollout.graph) == {
        ("__start__", "begin"),
        ("begin", "extract_state"),
        ("extract_state", "select_state"),
        ("select_state", "propose_optimizations"),
        ("propose_optimizations", "select_optimizations"),
        ("select_optimizations", "lower"),
        ("select_optimizations", "finish"),
        ("lower", "record_step"),
        ("record_step", "extract_state"),
        ("record_step", "finish"),
        ("finish", "__end__"),
    }


def test_lowering_goes_back_to_write_with_each_failure() -> None:
    assert edges(lowering.graph) == {
        ("__start__", "write"),
        ("write", "compile"),
        ("write", "conclude"),
        ("compile", "verify"),
        ("compile", "write"),
        ("compile", "conclude"),
        ("verify", "profile"),
        ("verify", "write"),
        ("verify", "conclude"),
        ("profile", "write"),
        ("profile", "conclude"),
        ("conclude", "__end__"),
    }


def test_graphs_compile_without_a_checkpointer_for_studio_and_parents() -> None:
    for module in (optimize, rollout, lowering):
        assert module.graph.checkpointer is None
