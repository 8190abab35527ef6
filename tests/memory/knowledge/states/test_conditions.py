"""Conditions say what must be so of a kernel, and are silent about what nobody knows."""

from __future__ import annotations

import pytest
from builtin_support import softmax_task
from pydantic import ValidationError
from rows import row

from kernelblaster.harness.records.evaluations import DeviceIdentity
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.conditions import (
    BEYOND_SIGNATURE,
    FEATURES,
    evidence_facts,
    evidence_figures,
    kernel_facts,
    misnamed,
    unmet,
)
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.optimizations import Optimization, StateOptimization

PLAIN = Optimization(
    technique="t", description="d", applies_when="a", avoid_when="v", side_effects="s",
    notes="n", prior_log_gain=0.1, prior_strength=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("feature", "comparison", "value", "holds"),
    [
        ("sm", "at_least", 0.5, True),
        ("sm", "at_least", 0.7, False),
        ("sm", "at_most", 0.6, True),
        ("sm", "at_most", 0.5, False),
        ("sm", "equals", 0.6, True),
        ("op_class", "equals", "softmax", True),
        ("op_class", "equals", "matmul", False),
        ("op_class", "among", ("matmul", "softmax"), True),
        ("op_class", "lacks", ("matmul", "softmax"), False),
        ("operators", "among", ("mm", "exp"), True),
        ("operators", "lacks", ("mm", "relu"), True),
        ("operators", "lacks", ("exp",), False),
        ("registers", "at_least", 3.0, None),
        ("op_class", "at_least", 3.0, None),
        ("sm", "among", ("exp",), None),
        ("operators", "equals", "exp", None),
    ],
)
def test_a_condition_holds_or_not_or_is_not_known(feature, comparison, value, holds):
    facts = {"sm": 0.6, "op_class": "softmax", "operators": frozenset({"exp", "sum"})}
    assert Condition(feature=feature, comparison=comparison, value=value).holds(facts) is holds


@pytest.mark.parametrize(
    ("comparison", "value"),
    [("at_least", "much"), ("at_most", ("a",)), ("among", "a"), ("lacks", 1.0), ("equals", ("a",))],
)
def test_a_comparison_refuses_what_it_cannot_compare_with(comparison, value):
    with pytest.raises(ValidationError, match="cannot compare"):
        Condition(feature="sm", comparison=comparison, value=value)


def test_what_is_not_known_keeps_nothing_back():
    unknown = Condition(feature="registers", comparison="at_most", value=64.0)
    wrong = Condition(feature="sm", comparison="at_least", value=0.9)
    assert unmet((unknown,), {"sm": 0.6}) is None
    assert unmet((unknown, wrong), {"sm": 0.6}) == wrong


def test_a_condition_on_what_there_is_not_is_told():
    there = Condition(feature="primary", comparison="among", value=("dram", "l2"))
    assert misnamed(there) is None
    odd = there.model_copy(update={"value": ("memory",)})
    assert misnamed(odd) == "primary is never memory"
    assert "no fact" in str(misnamed(there.model_copy(update={"feature": "speed"})))


def test_the_facts_of_a_kernel_are_those_that_are_listed():
    profile = Profile(
        launches=(
            LaunchProfile(
                kernel="k", grid=(4, 2, 1), block=(256, 1, 1), dynamic_shared_bytes=512,
                microseconds=30.0, bottleneck="dram", bottleneck_ties=("latency",),
                metrics={
                    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 25.0,
                    "launch__waves_per_multiprocessor": 0.5,
                    "launch__registers_per_thread": 40.0,
                    "launch__shared_mem_per_block_static": 1024.0,
                },
            ),
            LaunchProfile(
                kernel="l", grid=(1, 1, 1), block=(32, 1, 1), microseconds=10.0, metrics={},
                bottleneck="launch",
            ),
        ),
        gpu="H100", provenance=Provenance.SIMULATED,
    )  # fmt: skip
    device = DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="t")
    facts = kernel_facts(
        softmax_task(), profile, device, bound_us=10.0, applied=("fuse",), writer="builtin"
    )
    assert set(BEYOND_SIGNATURE) <= set(facts) <= set(FEATURES)
    told = {name: facts[name] for name in BEYOND_SIGNATURE if name not in ("elements", "innermost")}
    assert told == {
        "op_class": "mixed", "operators": frozenset({"softmax"}), "dtype": "float32",
        "device_kind": "simulated", "gpu": "H100", "arch": "sm_90", "family": "hopper",
        "capability": 9.0, "primary": "dram", "secondary": "latency", "microseconds": 40.0,
        "headroom": 4.0, "launches": 2.0, "share": 0.75, "blocks": 8.0, "threads": 256.0,
        "waves": 0.5, "blocks_per_sm": 8 / 132, "registers": 40.0, "shared_bytes": 1536.0,
        "applied": frozenset({"fuse"}), "writer": "builtin",
    }  # fmt: skip
    assert facts["sm"] == 0.25


def test_a_row_of_evidence_gives_the_facts_that_it_holds():
    facts = evidence_facts(row())
    assert facts["op_class"] == row().op_class and facts["writer"] == row().author
    assert set(facts) <= set(FEATURES)


def test_without_conditions_what_was_stored_earlier_keeps_its_id():
    condition = Condition(feature="sm", comparison="at_least", value=0.5)
    ids = set()
    for conditions in ((), (condition,)):
        card = PLAIN.model_copy(update={"conditions": conditions})
        change = StateOptimization(
            state_id="s", optimization=card, device_kind="cuda", revision=1, author="builtin"
        )
        lesson = Lesson(
            text="t", kind="observation", device_kind="cuda", author="builtin", run="r",
            iteration=0, conditions=conditions,
        )  # fmt: skip
        ids |= {change.id, lesson.id}
    assert len(ids) == 4
    # Computed by the version that knew no conditions.
    assert {
        "38df494f4e11b6b4f424768af2a1fcd69a0d41e055be813426170909987e5db2",
        "035749bf6bedb33de7bde679d6043ada5c3f0acdd925b74f3ebe82eec4d2207d",
    } <= ids


def test_figures_of_several_rows_are_those_that_the_facts_of_each_hold() -> None:
    rows = [
        row(0, signature={"dram": 0.8, "occupancy": 0.5}),
        row(1, signature={"dram": 0.3, "bound_dram": 1.0}),
        row(2, signature={"bound_dram": 1.0}),
    ]
    for some in (rows[:2], rows):
        facts = [evidence_facts(each) for each in some]
        everywhere = set.intersection(*(
            {name for name, value in each.items() if isinstance(value, float)} for each in facts
        )) - {"capability"}  # fmt: skip
        figures = evidence_figures(some)
        assert set(figures) == everywhere
        for name, column in figures.items():
            assert column == tuple(each[name] for each in facts)
