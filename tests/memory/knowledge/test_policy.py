"""Expected gains move with evidence: its own state and GPU most, never across kinds of device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelblaster.harness.records import sha256_of_json
from kernelblaster.memory.knowledge.facts import Facts
from kernelblaster.memory.knowledge.policy import (
    OTHER_HARNESS,
    Policy,
    thompson_sample,
    unknown_technique,
)
from kernelblaster.memory.knowledge.signature import distance
from kernelblaster.memory.records import (
    Evidence,
    ExpectedGain,
    Optimization,
    PerformanceState,
    PolicyContext,
)
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATES = {state.id: state for state in SEED.states}
DRAM = STATES["dram_bandwidth_bound"]
HERE = PolicyContext(
    device_kind="simulated",
    gpu="H100",
    arch="sm_90",
    family="hopper",
    op_class="elementwise",
    dtype="float32",
)
MEASURED = HERE.model_copy(update={"device_kind": "cuda"})


def evidence(number: int = 0, log_gain: float | None = 0.5, **changes: object) -> Evidence:
    facts: dict[str, object] = {
        "task_id": "t",
        "run": "r",
        "iteration": 0,
        "rollout": 0,
        "step": number,
        "op_class": "elementwise",
        "dtype": "float32",
        "parent_sha256": f"parent {number}",
        "child_sha256": f"child {number}",
        "state_before": DRAM.id,
        "signature_before": DRAM.centroid,
        "technique": "vectorize_memory_access",
        "expected_log_gain": 0.12,
        "outcome": "wrong_answer" if log_gain is None else "passed",
        "log_gain": log_gain,
        "device_kind": "simulated",
        "gpu": "H100",
        "arch": "sm_90",
        "family": "hopper",
        "toolchain": "nvcc 13.0",
        "author": "builtin",
    }
    return Evidence.model_validate({**facts, **changes})


def policy_of(
    rows: Iterable[Evidence],
    optimizations: Mapping[str, Mapping[str, Optimization]] = SEED.optimizations,
) -> Policy:
    facts = Facts()
    for number, row in enumerate(rows, 1):
        facts.add(number, row.id, row)
    return Policy(facts, len(facts.told(10**9)), SEED.states, optimizations)


def expect(
    *rows: Evidence,
    context: PolicyContext = HERE,
    technique: str = "vectorize_memory_access",
    state: PerformanceState = DRAM,
) -> ExpectedGain:
    optimization = SEED.optimizations[state.id][technique]
    return policy_of(rows).expected_gain(state, optimization, context)


def test_without_evidence_the_seed_speaks() -> None:
    prior = SEED.optimizations[DRAM.id]["vectorize_memory_access"]
    found = expect()
    assert found.mean_log == prior.prior_log_gain
    assert found.trials == found.failures == found.not_applicable == 0.0
    assert found.success_probability == pytest.approx(0.8)


def test_gains_raise_and_slowdowns_lower_the_score() -> None:
    before = expect()
    better = expect(*(evidence(i, 0.5) for i in range(3)))
    worse = expect(*(evidence(i, -0.3) for i in range(3)))
    assert better.score > before.score > worse.score
    assert better.mean_log == pytest.approx((2 * 0.12 + 3 * 0.5) / 5)
    assert better.success_probability > before.success_probability
    assert worse.slowdowns == 3.0 and worse.failures == 0.0


def test_the_belief_narrows_with_agreeing_evidence() -> None:
    few = expect(*(evidence(i, 0.1) for i in range(2)))
    many = expect(*(evidence(i, 0.1) for i in range(20)))
    assert many.std_log < few.std_log < expect().std_log


def test_failures_lower_the_score_and_not_the_gain() -> None:
    found = expect(*(evidence(i, None) for i in range(4)))
    assert found.score < expect().score
    assert found.mean_log == expect().mean_log
    assert found.failures == found.trials == 4.0
    assert found.success_probability < 0.5


def test_not_applicable_is_apart_weak_and_of_one_op_class() -> None:
    none = {"log_gain": None, "outcome": "not_applicable", "child_sha256": None}
    found = expect(*(evidence(i, **none) for i in range(2)))
    failed = expect(*(evidence(i, None) for i in range(2)))
    assert found.not_applicable == 2.0 and found.failures == found.trials == 0.0
    assert expect().success_probability > found.success_probability > failed.success_probability
    assert expect(evidence(0, op_class="matmul", **none)).score == expect().score


def test_outcomes_that_are_not_the_techniques_fault_do_not_count() -> None:
    blameless = evidence(0, None, outcome="profiler_unavailable")
    assert expect(blameless) == expect()


@given(st.lists(st.one_of(st.none(), st.floats(-3, 3)), max_size=8))
@settings(max_examples=50, deadline=None)
def test_simulated_evidence_never_moves_a_measured_estimate(gains: list[float | None]) -> None:
    simulated = [evidence(i, gain) for i, gain in enumerate(gains)]
    measured = [evidence(100 + i, 0.2, device_kind="cuda") for i in range(2)]
    deferred = [evidence(200, 0.3, device_kind="deferred")]
    assert expect(*simulated, *measured, *deferred, context=MEASURED) == expect(
        *measured, *deferred, context=MEASURED
    )
    assert expect(*simulated, *measured, *deferred) == expect(*simulated)


def test_deferred_measurements_are_measurements() -> None:
    deferred = evidence(0, 0.8, device_kind="deferred")
    assert expect(deferred, context=MEASURED).mean_log > expect(context=MEASURED).mean_log


def test_near_evidence_outweighs_any_amount_of_far_evidence() -> None:
    far = {"gpu": "A100", "arch": "sm_80", "family": "ampere"}
    distant = [evidence(i, -0.4, **far) for i in range(200)]
    near = [evidence(1000 + i, 0.6) for i in range(8)]
    found = expect(*distant, *near)
    assert found.mean_log > 0.3
    assert expect(*distant).mean_log == pytest.approx(-0.4, abs=0.02)
    assert expect(evidence(0, 0.9)).mean_log > expect(evidence(0, 0.9, **far)).mean_log - 1e-12


def test_a_family_stands_between_an_architecture_and_the_rest() -> None:
    def mean(arch: str, family: str) -> float:
        rows = [evidence(i, -0.4, arch="sm_80", family="ampere") for i in range(50)]
        rows += [evidence(100 + i, 0.6, arch=arch, family=family) for i in range(4)]
        return expect(*rows).mean_log

    assert mean("sm_90", "hopper") >= mean("sm_90a", "hopper") > mean("sm_75", "turing")


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"state_before": "l2_bound"},
        {"state_before": "found_later", "signature_before": STATES["l2_bound"].centroid},
        {"op_class": "matmul"},
        {"dtype": "float16"},
        {"standard_error": 0.3},
    ],
)
def test_evidence_from_elsewhere_counts_less(elsewhere: dict[str, object]) -> None:
    here = expect(evidence(0, 1.0)).mean_log
    there = expect(evidence(0, 1.0, **elsewhere)).mean_log
    assert here > there > expect().mean_log


def test_the_same_fact_told_twice_is_one_fact() -> None:
    once = evidence(0, 0.5)
    again = once.model_copy(update={"run": "second", "rollout": 3})
    assert again.id != once.id
    assert expect(once, again) == expect(once)
    measured_anew = again.model_copy(update={"log_gain": 0.6})
    assert expect(once, measured_anew).trials == 2.0


def test_an_advantage_pooled_over_a_whole_base_moves_no_expected_gain() -> None:
    """As it was recorded: after tiling, on kernels of every kind, a technique gained most."""
    sources = ["elementwise", "softmax", "matmul", "layernorm"]
    places = ["dram_bandwidth_bound", "l2_bound", "shared_bank_conflicts"]
    rows = [
        evidence(
            number,
            0.9 if number % 2 else -0.2,
            task_id=f"task {number % 11}",
            op_class=sources[number % 4],
            state_before=places[number % 3],
            previous_technique="shared_memory_tiling" if number % 2 else "unroll_loop",
        )
        for number in range(240)
    ]
    mixed = [
        # The same gains, each after the other technique: nothing is left of the advantage.
        row.model_copy(
            update={"previous_technique": "unroll_loop" if number % 2 else "shared_memory_tiling"}
        )
        for number, row in enumerate(rows)
    ]
    unordered = [row.model_copy(update={"previous_technique": None}) for row in rows]
    found = expect(*rows)
    assert found.mean_log > 0.15 and found.trials > 40
    assert found == expect(*mixed) == expect(*unordered)
    draws = [thompson_sample(gain, np.random.default_rng(1)) for gain in (found, expect(*mixed))]
    assert draws[0] == draws[1]


def chain(parent: str, child: str, technique: str, log_gain: float, **changes: object) -> Evidence:
    return evidence(
        0,
        log_gain,
        parent_sha256=parent,
        child_sha256=child,
        technique=technique,
        **changes,
    )


TILE, PAD = "shared_memory_tiling", "pad_shared_memory"


def prepared(rows: list[Evidence], technique: str) -> float:
    context = HERE.model_copy(update={"op_class": "elementwise"})
    optimization = SEED.techniques[technique]
    return policy_of(rows).expected_gain(DRAM, optimization, context).prepared_log


def test_a_technique_that_prepares_earns_what_follows_shrunk_by_its_tries() -> None:
    once = [chain("start", "tiled", TILE, -0.1), chain("tiled", "padded", PAD, 0.4)]
    assert prepared(once, TILE) == pytest.approx(0.9 * 0.4 / 2)
    assert prepared(once, PAD) == 0.0
    twice = [*once, chain("s2", "t2", TILE, -0.1), chain("t2", "p2", PAD, 0.4)]
    assert prepared(twice, TILE) == pytest.approx(0.9 * 0.4 * 2 / 3)
    other_gpu = [once[0], once[1].model_copy(update={"gpu": "A100"})]
    assert prepared(other_gpu, TILE) == 0.0, "what follows on another GPU says nothing here"


def test_what_can_be_had_without_a_step_is_not_its_credit() -> None:
    rows = [chain("start", "tiled", TILE, -0.1), chain("tiled", "padded", PAD, 0.4)]
    rows.append(chain("start", "fast", "fast_math", 0.3))
    assert prepared(rows, TILE) == pytest.approx((0.9 * 0.4 - 0.3) / 2)


def test_a_second_path_to_the_same_step_does_not_take_its_credit_away() -> None:
    rows = [chain("start", "tiled", TILE, -0.1), chain("tiled", "padded", PAD, 0.4)]
    rows.append(chain("start", "tuned", "tune_block_size", 0.0))
    rows.append(chain("tuned", "tuned and tiled", TILE, -0.1))
    rows.append(chain("tuned and tiled", "all", PAD, 0.4))
    # Both tries of the tile are credited, though from the start the tile can also come second.
    assert prepared(rows, TILE) == pytest.approx(0.9 * 0.4 * 2 / 3)


def test_in_an_easy_world_no_first_step_prepares() -> None:
    """Whatever comes first, the same gain follows."""
    firsts = [TILE, "fast_math", "unroll_loop"]
    rows = [chain("start", f"after {name}", name, 0.0) for name in firsts]
    rows += [
        chain(f"after {name}", f"done {name}", "vectorize_memory_access", 0.5) for name in firsts
    ]
    assert [prepared(rows, name) for name in firsts] == [0.0, 0.0, 0.0]


def test_names_of_runs_and_order_of_rows_decide_nothing() -> None:
    """Runs repeat each other's steps, expecting and timing them differently."""
    rows = [
        evidence(
            number % 5,
            round(0.1 * (number % 5) - 0.1, 6),
            run=f"run {number}",
            expected_log_gain=0.01 * number,
            standard_error=0.02 * number,
            previous_technique="unroll_loop" if number % 2 else None,
        )
        for number in range(20)
    ]
    optimization = SEED.optimizations[DRAM.id]["vectorize_memory_access"]
    expected = policy_of(rows).expected_gain(DRAM, optimization, HERE)
    assert expected.trials == 10.0
    for shift in range(1, 8):
        renamed = [
            row.model_copy(update={"run": f"run {(number * 7 + shift) % 20}", "created": "later"})
            for number, row in enumerate(rows)
        ]
        again = policy_of(renamed).expected_gain(DRAM, optimization, HERE)
        assert again == expected
    assert policy_of(rows[::-1]).expected_gain(DRAM, optimization, HERE) == expected


def test_what_another_version_of_the_harness_measured_counts_half() -> None:
    now = HERE.model_copy(update={"harness": "2"})
    new = expect(evidence(0, 1.0, harness="2"), context=now)
    old = expect(evidence(0, 1.0, harness="1"), context=now)
    unnamed = expect(evidence(0, 1.0), context=now)
    assert (new.trials, old.trials, unnamed.trials) == (1.0, OTHER_HARNESS, OTHER_HARNESS)
    assert new.mean_log > old.mean_log == unnamed.mean_log > expect().mean_log
    assert expect(evidence(0, 1.0, harness="1")).trials == 1.0, "a context that does not say"


def test_evidence_without_a_harness_keeps_its_id() -> None:
    row = evidence(0)
    content = row.model_dump(mode="json", exclude={"created", "harness", "repairs"})
    assert row.id == sha256_of_json(["evidence", content])
    assert evidence(0, harness="2").id != row.id


def test_a_prior_drawn_from_evidence_counts_it_once() -> None:
    """In its own state listing changes no belief; neighbours gain a technique to try."""
    rows = [evidence(i, 0.4, technique="tma_loads") for i in range(2)]
    listed = unknown_technique("tma_loads").model_copy(
        update={
            "prior_log_gain": 0.2,
            "prior_strength": 1.0,
            "prior_evidence": tuple(row.id for row in rows),
        }
    )
    table = {**SEED.optimizations, DRAM.id: {**SEED.optimizations[DRAM.id], "tma_loads": listed}}
    with_it, without = policy_of(rows, table), policy_of(rows)

    def offered(policy: Policy, state: PerformanceState) -> dict[str, ExpectedGain]:
        return {item.technique: gain for item, gain in policy.candidates(state, HERE)}

    own = [offered(policy, DRAM)["tma_loads"].mean_log for policy in (with_it, without)]
    assert own[0] == pytest.approx(own[1])
    near = min(
        (state for state in SEED.states if state.id != DRAM.id),
        key=lambda state: distance(state.centroid, DRAM.centroid),
    )
    assert "tma_loads" in offered(with_it, near) and "tma_loads" not in offered(without, near)


def test_candidates_come_best_first_without_what_was_tried() -> None:
    policy = policy_of([])
    found = policy.candidates(DRAM, HERE)
    scores = [gain.score for _, gain in found]
    assert scores == sorted(scores, reverse=True)
    names = [optimization.technique for optimization, _ in found]
    assert len(set(names)) == len(names)
    assert set(SEED.optimizations[DRAM.id]) < set(names), "neighbours offer theirs too"
    tried = HERE.model_copy(update={"tried": (names[0],)})
    assert names[0] not in [item.technique for item, _ in policy.candidates(DRAM, tried)]


def test_a_technique_only_evidence_knows_is_offered() -> None:
    rows = [evidence(i, 0.4, technique="tma_loads", author="model") for i in range(3)]
    policy = policy_of(rows)
    found = {item.technique: gain for item, gain in policy.candidates(DRAM, HERE)}
    assert found["tma_loads"].mean_log > 0.3
    measured = {item.technique for item, _ in policy.candidates(DRAM, MEASURED)}
    assert "tma_loads" not in measured


def test_a_discovered_state_borrows_from_its_neighbours() -> None:
    found = DRAM.model_copy(update={"id": "found_dram_x", "origin": "discovered"})
    policy = policy_of([])
    offered = {item.technique: item for item, _ in policy.candidates(found, HERE)}
    own = SEED.optimizations[DRAM.id]["vectorize_memory_access"]
    assert offered["vectorize_memory_access"].prior_log_gain == own.prior_log_gain / 2


def test_thompson_sampling_is_reproducible_and_centred_on_the_belief() -> None:
    belief = expect(*(evidence(i, 0.5) for i in range(20)))
    draws = [thompson_sample(belief, np.random.default_rng(seed)) for seed in range(2000)]
    again = [thompson_sample(belief, np.random.default_rng(seed)) for seed in range(2000)]
    assert draws == again
    assert np.mean(draws) == pytest.approx(belief.score, abs=0.02)
    assert 0.0 < np.std(draws) < 0.3


def test_an_unpromising_technique_is_still_chosen_sometimes() -> None:
    good, poor = expect(evidence(0, 0.4)), expect(evidence(0, 0.05))
    wins = sum(
        thompson_sample(poor, np.random.default_rng([seed, 1]))
        > thompson_sample(good, np.random.default_rng([seed, 2]))
        for seed in range(500)
    )
    assert 0 < wins < 250


def test_only_a_pass_has_a_gain() -> None:
    for outcome, gain in (("passed", None), ("crashed", 0.1), ("odd", None)):
        with pytest.raises(ValidationError):
            evidence(0, gain, outcome=outcome)


def test_the_time_is_not_part_of_evidences_identity() -> None:
    assert evidence(created="2026-01-01").id == evidence(created="2027-01-01").id
    assert evidence(0).id != evidence(1).id


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_mean_stays_between_prior_and_evidence(gains: list[float]) -> None:
    found = expect(*(evidence(i, gain) for i, gain in enumerate(gains)))
    low, high = min([0.12, *gains]), max([0.12, *gains])
    assert low - 1e-9 <= found.mean_log <= high + 1e-9
    assert math.isfinite(found.std_log) and found.std_log > 0
