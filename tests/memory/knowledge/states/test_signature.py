"""A profile becomes a vector whose dimensions mean what they say, on any device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.dimensions import (
    AT_BOUND,
    BOTTLENECKS,
    DIMENSIONS,
    EARLIER,
    SECOND,
    UNKNOWN,
)
from kernelblaster.memory.knowledge.states.distances import distance, embed
from kernelblaster.memory.knowledge.states.signature import (
    bottlenecks_of,
    centroid_of,
    completed,
    explain,
    signature_of,
)
from kernelblaster.memory.knowledge.states.signature import named as known
from kernelblaster.memory.records.states import Signature

PEAK = "avg.pct_of_peak_sustained_elapsed"
METRICS = {
    f"sm__throughput.{PEAK}": 42.0,
    f"gpu__dram_throughput.{PEAK}": 80.0,
    f"lts__throughput.{PEAK}": 55.0,
    f"l1tex__throughput.{PEAK}": 30.0,
    "l1tex__t_sector_hit_rate.pct": 25.0,
    "lts__t_sector_hit_rate.pct": 60.0,
    "sm__maximum_warps_per_active_cycle_pct": 50.0,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 45.0,
    "launch__occupancy_limit_warps": 8.0,
    "launch__occupancy_limit_registers": 4.0,
    "launch__occupancy_limit_shared_mem": 16.0,
    "launch__occupancy_limit_blocks": 32.0,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 100.0,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3200.0,
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 100.0,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 400.0,
    "memory_l2_theoretical_sectors_global": 3600.0,
    "memory_l2_theoretical_sectors_global_ideal": 900.0,
    "memory_l1_wavefronts_shared": 800.0,
    "memory_l1_wavefronts_shared_ideal": 200.0,
    f"sm__inst_executed_pipe_fma.{PEAK}": 20.0,
    f"sm__inst_executed_pipe_xu.{PEAK}": 7.0,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 24.0,
    "launch__waves_per_multiprocessor": 0.25,
    "launch__registers_per_thread": 51.0,
    "launch__shared_mem_per_block_static": 227 * 256.0,
    "dram__bytes_read.sum": 6144.0,
    "dram__bytes_write.sum": 24576.0,
    "smsp__pcsamp_warps_issue_stalled_barrier": 30.0,
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard": 60.0,
    "smsp__pcsamp_warps_issue_stalled_no_instruction": 10.0,
    "smsp__pcsamp_warps_issue_stalled_selected": 500.0,
}


def launch(microseconds: float = 10.0, **changes: object) -> LaunchProfile:
    facts: dict[str, object] = {
        "kernel": "k",
        "grid": (8, 1, 1),
        "block": (256, 1, 1),
        "microseconds": microseconds,
        "metrics": METRICS,
        "bottleneck": "dram",
    }
    return LaunchProfile.model_validate({**facts, **changes})


def profile(*launches: LaunchProfile) -> Profile:
    return Profile(launches=launches, gpu="H100", provenance=Provenance.SIMULATED)


def named(*launches: LaunchProfile) -> dict[str, float]:
    return known(signature_of(profile(*launches)).values)


def test_dimensions_read_the_metrics_they_name() -> None:
    found = named(launch())
    expected = {
        "sm": 0.42,
        "dram": 0.8,
        "l2": 0.55,
        "l1": 0.3,
        "l1_hit": 0.25,
        "l2_hit": 0.6,
        "occupancy_limit": 0.5,
        "occupancy": 0.45,
        "limit_registers": 1.0,
        "limit_shared": 0.0,
        "load_sectors": 1.0,
        "store_sectors": 0.125,
        "uncoalesced": 0.75,
        "bank_conflicts": 0.75,
        "shared_share": 0.8,
        "fma": 0.2,
        "xu": 0.07,
        "idle_lanes": 0.25,
        "unfilled": 0.75,
        "compute_balance": 0.2,
        "duration": 0.2,
        "more_launches": 0.0,
        "bound_dram": 1.0,
        "bound_lsu": 0.0,
        "stall_memory": 0.6,
        "stall_barrier": 0.3,
        "stall_fetch": 0.1,
        "stall_pipe": 0.0,
        "register_share": 0.2,
        "shared_room": 0.25,
        "block_threads": 0.8,
        "tail": 0.0,
        "written": 0.8,
        "thread_bytes": 0.25,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("blocks", "gpu", "idle"), [(33, "H100", 0.75), (256, "H100", 0.0), (33, "a GPU unknown", None)]
)
def test_every_sm_has_a_block_or_it_is_told_which_share_has_none(
    blocks: int, gpu: str, idle: float | None
) -> None:
    """Which says nothing of how many more of them the SMs could hold."""
    program = profile(launch(grid=(blocks, 1, 1))).model_copy(update={"gpu": gpu})
    found = known(signature_of(program).values)
    assert found.get("idle_sms") == idle and found["unfilled"] == 0.75


def test_a_program_of_several_kernels_is_seen_through_its_dominant_launch() -> None:
    small = launch(2.0, metrics={}, bottleneck="launch").model_copy(update={"kernel": "small"})
    found = named(small, launch(6.0), small)
    assert found["dram"] == 0.8 and found["bound_dram"] == 1.0 and found["bound_launch"] == 0.0
    assert found["more_launches"] == pytest.approx(2 / 3, abs=1e-5)
    assert found["other_launches"] == pytest.approx(0.4)
    program = profile(small, launch(6.0), small)
    other = known(signature_of(program, program.launches[0]).values)
    assert other["other_launches"] == pytest.approx(0.6) and other["bound_launch"] == 1.0
    assert "dram" not in other


def test_a_signature_is_kept_for_its_profile_alone() -> None:
    program = profile(launch(6.0))
    assert signature_of(program) is signature_of(program, program.launches[0])
    assert signature_of(program, bound_us=6.0) != signature_of(program)
    slower = program.model_copy(update={"launches": (launch(600.0),)})
    assert signature_of(slower) != signature_of(program)


def test_a_metric_that_is_missing_is_not_known() -> None:
    found = named(launch(1.0, metrics={}))
    assert {name: value for name, value in found.items() if value} == {
        "bound_dram": 1.0, "block_threads": 0.8, "idle_sms": pytest.approx(124 / 132, abs=1e-6),
    }  # fmt: skip
    without = {name: value for name, value in METRICS.items() if "l1tex" not in name}
    few, all_of_them = named(launch(metrics=without)), named(launch())
    assert not {"load_sectors", "spills", "atomics", "l1", "l1_hit"} & few.keys()
    assert {name: all_of_them[name] for name in few} == few


def test_what_either_does_not_know_does_not_count() -> None:
    one = list(centroid_of({"dram": 0.9}))
    other = list(one)
    other[0] = 1.0
    assert distance(one, other) > 0.05
    other[0] = UNKNOWN
    assert distance(one, other) == distance(other, one) == 0.0
    nothing = [UNKNOWN] * len(DIMENSIONS)
    assert distance(one, nothing) == 0.0 and not explain(Signature(values=tuple(nothing)))


@pytest.mark.parametrize(("bound", "near"), [(None, 0.0), (1.0, 0.0), (6.0, 0.0), (8.0, 0.5)])
def test_near_the_bound_is_a_dimension(bound: float | None, near: float) -> None:
    found = known(signature_of(profile(launch()), bound_us=bound).values)
    assert found["at_bound"] == pytest.approx(near)


def test_other_devices_report_the_same_facts_under_other_names() -> None:
    full = named(launch())
    simulated = {
        name: value
        for name, value in METRICS.items()
        if "theoretical" not in name and "warps_active" not in name
    }
    simulated |= {
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": 32.0,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": 3600.0,
        "ptxas__spill_store_bytes": 128.0,
    }
    found = named(launch(metrics=simulated))
    assert found["load_sectors"] == full["load_sectors"]
    assert found["uncoalesced"] == pytest.approx(3200 * (1 - 4 / 32) / 3600, abs=1e-5)
    used = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
    broadcast = {**simulated, used.format("ld"): 128.0, used.format("st"): 8.0}
    found_bytes = named(launch(metrics=broadcast))["uncoalesced"]
    assert found_bytes == pytest.approx(400 * 0.75 / 3600, abs=1e-5)
    assert found["occupancy"] == found["occupancy_limit"]
    assert found["atomics"] == 0.5 and found["spills"] == 0.25


def test_the_earlier_layout_is_the_first_part_of_todays() -> None:
    earlier = [0.5] * EARLIER
    today = completed(earlier)
    assert len(today) == len(DIMENSIONS) and today[:EARLIER] == tuple(earlier)
    assert {*today[EARLIER:AT_BOUND], *today[AT_BOUND + 1 :]} == {UNKNOWN}
    assert today[AT_BOUND] == 0.0 and completed(today) == today
    second = [0.5] * SECOND
    assert completed(second) == (*second, *[UNKNOWN] * (len(DIMENSIONS) - SECOND))
    assert distance(earlier, signature_of(profile(launch())).values) > 0.0
    with pytest.raises(ValueError, match="12 values"):
        completed([0.0] * 12)


def test_the_second_bottleneck_is_a_tie_or_the_next_term() -> None:
    assert bottlenecks_of(profile(launch(bottleneck_ties=("l2",)))) == ("dram", "l2")
    terms = {"dram": 9.0, "lsu": 4.0, "latency": 5.0, "overhead": 8.0}
    assert bottlenecks_of(profile(launch(terms=terms))) == ("dram", "latency")
    assert bottlenecks_of(profile(launch())) == ("dram", "l2"), "by the counters"
    assert bottlenecks_of(profile(launch(metrics={}))) == ("dram", None)
    waiting = {"smsp__pcsamp_warps_issue_stalled_long_scoreboard": 9.0}
    assert bottlenecks_of(profile(launch(metrics=waiting))) == ("dram", "latency")


def test_explain_names_what_is_striking_first() -> None:
    words = explain(signature_of(profile(launch())))
    assert len(words) == 5
    assert set(words[:2]) == {
        "75% of the sectors are wasted",
        "75% of the shared wavefronts are conflicts",
    }
    assert explain(Signature(values=centroid_of({}))) == []


def test_a_centroid_names_only_known_features() -> None:
    values = dict(zip((d.name for d in DIMENSIONS), centroid_of({"dram": 0.9}), strict=True))
    assert values["dram"] == 0.9
    assert all(values[d.name] == d.neutral for d in DIMENSIONS[:EARLIER] if d.name != "dram")
    assert values["stall_fetch"] == UNKNOWN and values["at_bound"] == 0.0
    assert set(centroid_of({"dram": 0.9}, alone=True)) == {0.9, UNKNOWN}
    for wrong in ({"speed": 0.5}, {"dram": 1.5}):
        with pytest.raises(ValueError):
            centroid_of(wrong)


def test_every_bottleneck_has_a_dimension() -> None:
    names = [dimension.name for dimension in DIMENSIONS]
    assert len(set(names)) == len(names)
    assert {f"bound_{name}" for name in BOTTLENECKS} <= set(names)


earlier = st.lists(st.floats(0, 1), min_size=EARLIER, max_size=EARLIER)
values = st.lists(
    st.one_of(st.floats(0, 1), st.just(UNKNOWN)),
    min_size=len(DIMENSIONS), max_size=len(DIMENSIONS),
)  # fmt: skip


@given(earlier, earlier)
def test_distances_of_the_earlier_layout_are_those_of_its_vectors(
    one: list[float], two: list[float]
) -> None:
    squares = sum((a - b) ** 2 for a, b in zip(embed(one), embed(two), strict=True))
    assert distance(one, two) == pytest.approx(squares**0.5)


@given(values, values)
def test_a_distance_is_a_share(one: list[float], two: list[float]) -> None:
    assert distance(one, two) == distance(two, one) <= 1.0 + 1e-12
    assert distance(one, one) == 0.0
