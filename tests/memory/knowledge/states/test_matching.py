"""Real and simulated kernels come to the states that an engineer would name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DATA

from kernelblaster.harness.nsight.profile import profile_from_pages
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS, UNKNOWN
from kernelblaster.memory.knowledge.states.matching import (
    NEAR,
    States,
    best,
    discover,
    joined,
    tied,
)
from kernelblaster.memory.knowledge.states.signature import (
    bottlenecks_of,
    centroid_of,
    signature_of,
)
from kernelblaster.memory.records.states import PerformanceState, Signature
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed().states
EXPECTED = {
    "vadd": "dram_bandwidth_bound",
    "vadd_32_threads": "launch_rate_bound",
    "vadd_strided": "scattered_stores uncoalesced_global_access",
    "vadd_float4": "dram_bandwidth_bound",
    "gelu": "dram_bandwidth_bound rows_read_repeatedly",
    "softmax_thread": "serial_rows_small_grid",
    "softmax_block": "compute_issue_bound integer_index_bound divergent_warps",
    "softmax_warp": "dram_bandwidth_bound rows_read_repeatedly",
    "reduce_atomic": "atomic_contention latency_bound_dependent_loads",
    "reduce_shared": "dram_bandwidth_bound rows_read_repeatedly",
    "reduce_shfl4": "dram_bandwidth_bound",
    "transpose": "scattered_stores",
    "transpose_conflict": "shared_bank_conflicts uncoalesced_global_access",
    "transpose_padded": "latency_bound_dependent_loads",
    "mm_uncoalesced": "uncoalesced_global_access lsu_bound_matmul",
    "mm_naive": "lsu_bound_matmul",
    "mm_tiled16": "shared_memory_bound_matmul lsu_bound_matmul",
    "mm_tiled32": "shared_memory_bound_matmul lsu_bound_matmul",
    "mm_regtile": "register_tiled_product",
    "mm_wmma": "uncoalesced_global_access lsu_bound_matmul",
    "divergent": "divergent_warps compute_issue_bound",
    "uniform_loop": "compute_issue_bound",
    "ilp1": "small_grid_tail",
    "ilp4": "small_grid_tail",
    "layernorm": "shared_memory_bound_matmul register_spilling divergent_warps",
}
"""Kernels of the recorded pages with the states that are right, the second with fewer counters."""


def launches(collection: str) -> dict[str, LaunchProfile]:
    raw, details = (
        (DATA / "ncu" / f"ncu_{collection}_{page}.csv").read_text() for page in ("raw", "details")
    )
    profile = profile_from_pages(raw, details).profile
    assert profile is not None
    return dict(zip(EXPECTED, profile.launches, strict=True))


@pytest.mark.parametrize("collection", ["full", "detailed", "basic"])
def test_real_launches_are_in_known_states_whatever_was_counted(collection: str) -> None:
    states = States(SEED)
    for name, launch in launches(collection).items():
        alone = Profile(launches=(launch,), gpu="H200", provenance=Provenance.NCU)
        found = best(states.near(signature_of(alone), *bottlenecks_of(alone)))
        assert found is not None, f"{name} is in no known state"
        assert found.state.id in EXPECTED[name].split(), (name, found.state.id)


def test_a_real_profile_has_a_second_bottleneck_where_one_comes_near() -> None:
    found = {
        name: bottlenecks_of(Profile(launches=(each,), gpu="H200", provenance=Provenance.NCU))
        for name, each in launches("full").items()
    }
    assert found["vadd"] == ("dram", "l2")
    assert found["reduce_shared"] == ("dram", "latency")
    assert found["mm_regtile"] == ("shared_memory", "compute")
    assert found["uniform_loop"] == ("compute", None)
    assert sum(second is not None for _, second in found.values()) > 15


def test_no_name_of_a_bottleneck_keeps_a_kernel_from_its_state() -> None:
    """A register-tiled product is held back by whatever is left: its figures say what it is."""
    tiled = next(state for state in SEED if state.id == "register_tiled_product")
    for primary in ("lsu", "compute", "latency", "shared_memory", "l2", "tensor"):
        near = States(SEED).near(Signature(values=tiled.centroid), primary, None)  # type: ignore[arg-type]
        assert near[0].state == tiled and near[0].weight > 0.5 and tied(near) == near[:1]


@pytest.mark.parametrize("name", ["vadd_float4", "mm_tiled32", "uniform_loop"])
def test_a_program_near_its_bound_is_told_by_the_headroom_alone(name: str) -> None:
    """Whatever holds it back: near the bound nothing is left to gain."""
    program = Profile(
        launches=(launches("full")[name],), gpu="H200", provenance=Provenance.NCU
    )
    found = {}
    for share in (0.95, 0.7, None):
        bound = None if share is None else share * program.microseconds
        signature = signature_of(program, bound_us=bound)
        near = States(SEED).near(signature, *bottlenecks_of(program))
        found[share] = [each.state.id for each in tied(near)]
    assert found[0.95] == ["near_roofline"]
    assert found[0.7] and "near_roofline" not in found[0.7] + found[None]


def test_what_is_known_by_its_time_alone_is_in_no_state_that_counters_tell() -> None:
    blind = launches("full")["vadd"].model_copy(update={"metrics": {}})
    signature = signature_of(
        Profile(launches=(blind,), gpu="H200", provenance=Provenance.EVENTS)
    )
    near = States(SEED).near(signature, "dram", None)
    assert best(near) is None and tied(near) == []
    new = discover(signature, "dram", None)
    known = States((*SEED, new))
    assert best(known.near(signature, "dram", None)).state == new  # type: ignore[union-attr]
    seen = Signature(values=SEED[0].centroid)
    assert best(known.near(seen, "dram", None)).state != new  # type: ignore[union-attr]


numbers = st.one_of(st.floats(0, 1), st.just(UNKNOWN))
signatures = st.lists(numbers, min_size=len(DIMENSIONS), max_size=len(DIMENSIONS))


@settings(max_examples=25, deadline=None)
@given(signatures, st.sampled_from(["dram", "lsu", "latency"]))
def test_weights_sum_to_one_and_fall_with_distance(values: list[float], primary: str) -> None:
    near = States(SEED).near(Signature(values=tuple(values)), primary, None)  # type: ignore[arg-type]
    assert sum(each.weight for each in near) == pytest.approx(1.0)
    assert [each.weight for each in near] == sorted((x.weight for x in near), reverse=True)
    alike = tied(near)
    assert all(each.weight >= NEAR * alike[0].weight for each in alike)
    assert States(()).near(Signature(values=tuple(values)), "dram", None) == []


@settings(max_examples=25, deadline=None)
@given(st.lists(signatures, max_size=6), st.randoms(use_true_random=False))
def test_joining_does_not_depend_on_the_order(several: list[list[float]], stream: object) -> None:
    states: list[PerformanceState] = [
        discover(Signature(values=tuple(values)), "dram", None) for values in several
    ]
    states = list({state.id: state for state in states}.values())
    standing, into = joined((*SEED, *states))
    assert len(standing) + len(into) == len(SEED) + len(states)
    assert set(into.values()) <= {state.id for state in standing}
    stream.shuffle(states)  # type: ignore[attr-defined]
    again, same = joined((*SEED, *states))
    assert same == into and {each.id for each in again} == {each.id for each in standing}
    assert joined(again)[1] == {}


def test_a_seed_state_stands_and_what_overlaps_it_is_it() -> None:
    middle = Signature(values=SEED[3].centroid)
    found = discover(middle, SEED[3].primary, None)
    standing, into = joined((*SEED, found))
    assert list(standing) == list(SEED) and into == {found.id: SEED[3].id}
    assert centroid_of({}) != found.centroid
