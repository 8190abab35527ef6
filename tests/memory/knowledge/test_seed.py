"""The seed is complete, refers only to what exists, and knows real profiles when it sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.knowledge.states.distances import distance
from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()


def test_there_are_enough_states_and_techniques() -> None:
    assert len(SEED.states) >= 27 and len(SEED.techniques) >= 70
    assert len({state.id for state in SEED.states}) == len(SEED.states)


def test_every_technique_is_explained_and_stands_under_some_state() -> None:
    under_states = {name for known in SEED.optimizations.values() for name in known}
    assert under_states == set(SEED.techniques)
    for technique in SEED.techniques.values():
        for text in (technique.description, technique.applies_when, technique.notes):
            assert len(text) > 30, technique.technique
        assert technique.avoid_when and technique.side_effects
        assert all(values for values in technique.parameters.values())


def test_every_state_has_a_place_and_things_to_try() -> None:
    for state in SEED.states:
        assert len(state.centroid) == len(DIMENSIONS)
        assert 0.1 < state.spread < 0.3
        assert state.primary != state.secondary
        assert len(SEED.optimizations[state.id]) >= 4
        best = max(item.prior_log_gain for item in SEED.optimizations[state.id].values())
        assert best > 0.1 or state.id == "near_roofline" and "Stop" in state.description


def test_states_of_one_bottleneck_lie_apart() -> None:
    for first in SEED.states:
        for second in SEED.states:
            if first.id < second.id and first.primary == second.primary:
                assert distance(first.centroid, second.centroid) > 0.06, (first.id, second.id)


# Dimensions of launches profiled with Nsight Compute on an H200, rounded to two places.
MEASURED: dict[str, tuple[str, str, Mapping[str, float]]] = {
    "vadd_float4": (
        "dram",
        "dram_bandwidth_bound",
        {
            "sm": 0.13,
            "dram": 0.83,
            "l2": 0.9,
            "l1": 0.22,
            "l2_hit": 0.34,
            "occupancy_limit": 1.0,
            "occupancy": 0.81,
            "load_sectors": 0.5,
            "store_sectors": 0.5,
            "fma": 0.03,
            "alu": 0.01,
            "lsu": 0.05,
            "many_waves": 0.4,
            "compute_balance": 0.04,
            "duration": 0.33,
            "bound_dram": 1.0,
        },
    ),
    "softmax_thread": (
        "lsu",
        "serial_rows_small_grid",
        {
            "sm": 0.03,
            "dram": 0.04,
            "l2": 0.36,
            "l1": 0.38,
            "l1_hit": 0.9,
            "l2_hit": 0.91,
            "occupancy_limit": 1.0,
            "occupancy": 0.06,
            "load_sectors": 1.0,
            "store_sectors": 1.0,
            "uncoalesced": 0.88,
            "fma": 0.04,
            "alu": 0.01,
            "xu": 0.05,
            "lsu": 0.03,
            "unfilled": 0.97,
            "idle_sms": 0.52,
            "compute_balance": 0.47,
            "duration": 0.51,
            "bound_lsu": 1.0,
        },
    ),
    "reduce_atomic": (
        "atomic",
        "atomic_contention",
        {
            "l2": 0.01,
            "l2_hit": 0.89,
            "occupancy_limit": 1.0,
            "occupancy": 0.81,
            "load_sectors": 0.12,
            "many_waves": 0.6,
            "atomics": 0.89,
            "compute_balance": 0.09,
            "duration": 0.89,
            "bound_atomic": 1.0,
        },
    ),
    "reduce_shared": (
        "latency",
        "latency_bound_dependent_loads",
        {
            "sm": 0.12,
            "dram": 0.48,
            "l2": 0.53,
            "l1": 0.1,
            "l2_hit": 0.01,
            "occupancy_limit": 1.0,
            "occupancy": 0.96,
            "load_sectors": 0.12,
            "shared_share": 0.08,
            "fma": 0.08,
            "alu": 0.05,
            "lsu": 0.11,
            "many_waves": 0.1,
            "compute_balance": 0.14,
            "duration": 0.3,
            "bound_latency": 1.0,
        },
    ),
    "transpose_naive": (
        "l2",
        "scattered_stores",
        {
            "sm": 0.08,
            "dram": 0.1,
            "l2": 0.84,
            "l1": 0.52,
            "l1_hit": 0.34,
            "l2_hit": 0.89,
            "occupancy_limit": 1.0,
            "occupancy": 0.56,
            "load_sectors": 0.12,
            "store_sectors": 1.0,
            "uncoalesced": 0.78,
            "fma": 0.01,
            "alu": 0.01,
            "lsu": 0.03,
            "many_waves": 0.6,
            "compute_balance": 0.11,
            "duration": 0.48,
            "bound_l2": 1.0,
        },
    ),
    "transpose_conflict": (
        "lsu",
        "shared_bank_conflicts",
        {
            "sm": 0.23,
            "dram": 0.19,
            "l2": 0.27,
            "l1": 0.6,
            "l2_hit": 0.5,
            "occupancy_limit": 1.0,
            "occupancy": 0.9,
            "load_sectors": 0.12,
            "store_sectors": 0.12,
            "bank_conflicts": 0.94,
            "shared_share": 0.94,
            "fma": 0.03,
            "alu": 0.05,
            "lsu": 0.1,
            "many_waves": 0.6,
            "compute_balance": 0.15,
            "duration": 0.42,
            "bound_lsu": 1.0,
        },
    ),
    "mm_uncoalesced": (
        "lsu",
        "uncoalesced_global_access",
        {
            "sm": 0.12,
            "l2": 0.05,
            "l1": 0.99,
            "l1_hit": 0.97,
            "l2_hit": 0.99,
            "occupancy_limit": 1.0,
            "occupancy": 0.97,
            "load_sectors": 0.27,
            "store_sectors": 0.5,
            "uncoalesced": 0.71,
            "fma": 0.05,
            "alu": 0.01,
            "lsu": 0.12,
            "many_waves": 0.4,
            "compute_balance": 0.99,
            "duration": 0.85,
            "bound_lsu": 1.0,
        },
    ),
    "mm_naive": (
        "lsu",
        "lsu_bound_matmul",
        {
            "sm": 0.66,
            "l2": 0.19,
            "l1": 0.99,
            "l1_hit": 0.88,
            "l2_hit": 0.99,
            "occupancy_limit": 1.0,
            "occupancy": 0.98,
            "load_sectors": 0.06,
            "store_sectors": 0.12,
            "fma": 0.26,
            "alu": 0.04,
            "lsu": 0.66,
            "many_waves": 0.4,
            "compute_balance": 0.99,
            "duration": 0.7,
            "bound_lsu": 1.0,
        },
    ),
    "mm_tiled32": (
        "lsu",
        "shared_memory_bound_matmul",
        {
            "sm": 0.76,
            "dram": 0.01,
            "l2": 0.09,
            "l1": 0.91,
            "l2_hit": 0.98,
            "occupancy_limit": 1.0,
            "occupancy": 0.98,
            "load_sectors": 0.12,
            "store_sectors": 0.12,
            "shared_share": 0.96,
            "fma": 0.15,
            "alu": 0.03,
            "lsu": 0.78,
            "many_waves": 0.4,
            "compute_balance": 0.97,
            "duration": 0.65,
            "bound_lsu": 1.0,
        },
    ),
    "divergent": (
        "compute",
        "divergent_warps",
        {
            "sm": 0.96,
            "dram": 0.13,
            "l2": 0.19,
            "l1": 0.05,
            "l2_hit": 0.51,
            "occupancy_limit": 1.0,
            "occupancy": 0.92,
            "load_sectors": 0.12,
            "store_sectors": 0.12,
            "fma": 0.7,
            "alu": 0.25,
            "lsu": 0.03,
            "tensor": 0.01,
            "idle_lanes": 0.47,
            "many_waves": 0.6,
            "compute_balance": 0.84,
            "duration": 0.45,
            "bound_compute": 1.0,
        },
    ),
    "uniform_loop": (
        "compute",
        "compute_issue_bound",
        {
            "sm": 0.89,
            "dram": 0.22,
            "l2": 0.31,
            "l1": 0.09,
            "l2_hit": 0.51,
            "occupancy_limit": 1.0,
            "occupancy": 0.83,
            "load_sectors": 0.12,
            "store_sectors": 0.12,
            "fma": 0.61,
            "alu": 0.3,
            "lsu": 0.06,
            "tensor": 0.01,
            "many_waves": 0.6,
            "compute_balance": 0.73,
            "duration": 0.41,
            "bound_compute": 1.0,
        },
    ),
    "ilp1": (
        "latency",
        "small_grid_tail",
        {
            "sm": 0.21,
            "l2": 0.01,
            "l2_hit": 0.45,
            "occupancy_limit": 1.0,
            "occupancy": 0.06,
            "load_sectors": 0.12,
            "store_sectors": 0.12,
            "fma": 0.21,
            "alu": 0.05,
            "unfilled": 0.94,
            "many_waves": 0.01,
            "compute_balance": 0.99,
            "duration": 0.21,
            "bound_latency": 1.0,
        },
    ),
}


@pytest.mark.parametrize("kernel", MEASURED)
def test_a_measured_launch_is_known_for_what_it_is(kernel: str) -> None:
    bottleneck, expected, features = MEASURED[kernel]
    values = centroid_of({**{item.name: 0.0 for item in DIMENSIONS}, **features})
    agreeing = [s for s in SEED.states if bottleneck in (s.primary, s.secondary)]
    nearest = min(agreeing, key=lambda state: distance(values, state.centroid))
    assert nearest.id == expected
    assert distance(values, nearest.centroid) <= nearest.spread


@pytest.mark.parametrize(
    ("usual", "told", "found"),
    [
        ("dram_bandwidth_bound", {"at_bound": 1.0}, "near_roofline"),
        ("latency_bound_low_occupancy",
         {"stall_fetch": 0.6, "stall_memory": 0.1, "fma": 0.35, "alu": 0.35, "dram": 0.1,
          "compute_balance": 0.85, "sm": 0.5, "occupancy": 0.5, "unfilled": 0.0},
         "instruction_cache"),
        ("latency_bound_dependent_loads",
         {"tail": 0.8, "occupancy": 0.45, "fma": 0.3, "lsu": 0.25, "compute_balance": 0.6,
          "many_waves": 0.12}, "tail_imbalance"),
        ("l2_bound", {"l1_hit": 0.2, "uncoalesced": 0.5, "load_sectors": 0.6, "asked_again": 0.6},
         "l1_thrash"),
        ("small_grid_tail",
         {"l1_hit": 0.85, "uncoalesced": 0.4, "load_sectors": 0.6, "store_sectors": 0.6,
          "stall_memory": 0.6, "duration": 0.6}, "scan_dependency"),
    ],
)  # fmt: skip
def test_a_symptom_moves_a_kernel_to_the_state_that_names_it(
    usual: str, told: Mapping[str, float], found: str
) -> None:
    centroid = {state.id: state.centroid for state in SEED.states}

    def nearest(values: Sequence[float]) -> str:
        return min(centroid, key=lambda name: distance(values, centroid[name]))

    before = [value if value >= 0.0 else 0.0 for value in centroid[usual]]
    after = list(before)
    for place, dimension in enumerate(DIMENSIONS):
        after[place] = told.get(dimension.name, before[place])
    assert (nearest(before), nearest(after)) == (usual, found)
