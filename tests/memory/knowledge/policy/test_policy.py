"""What could be tried on a kernel: actions with settings and targets, by what they promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from rows import row

from kernelblaster.harness.records.identity import sha256_of_json
from kernelblaster.memory.knowledge.journal import Entry, Journal
from kernelblaster.memory.knowledge.policy.policy import (
    Prospect,
    thompson_sample,
    unknown_technique,
)
from kernelblaster.memory.knowledge.snapshots.contents import EVIDENCE, OVERTURNED, Contents
from kernelblaster.memory.knowledge.snapshots.snapshot import Snapshot
from kernelblaster.memory.records.evidence import LATER_FIELDS, Evidence, Overturned
from kernelblaster.memory.records.optimizations import MacroStep, Optimization
from kernelblaster.memory.records.policy import (
    ExpectedGain,
    KernelAtHand,
    LaunchAtHand,
    PolicyContext,
    setting_name,
)
from kernelblaster.memory.records.states import PerformanceState
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATES = {state.id: state for state in SEED.states}
DRAM, L2 = STATES["dram_bandwidth_bound"], STATES["l2_bound"]
HERE = PolicyContext(
    device_kind="simulated", gpu="H100", arch="sm_90", family="hopper", op_class="elementwise",
    dtype="float32",
)  # fmt: skip
MEASURED = HERE.model_copy(update={"device_kind": "cuda"})
WIDER = "vectorize_memory_access"


def launch(kernel: str, share: float = 1.0, state: PerformanceState = DRAM) -> LaunchAtHand:
    return LaunchAtHand(kernel=kernel, share=share, signature=state.centroid)


def at_hand(**changes: Any) -> PolicyContext:
    """Return the context of a kernel: one launch, far from its bound."""
    of_context = {name: changes.pop(name) for name in ("refused", "own") if name in changes}
    facts = {
        "task_id": "here", "source_sha256": "source", "microseconds": 100.0, "bound_us": 5.0,
        "launches": (launch("rows"),),
    }  # fmt: skip
    kernel = KernelAtHand.model_validate({**facts, **changes})
    return HERE.model_copy(update={"kernel": kernel, **of_context})


def snapshot_of(rows: Iterable[Evidence], overturned: Iterable[Overturned] = ()) -> Snapshot:
    journal = Journal(Path(":memory:"))
    journal.append(Entry(EVIDENCE, each.id, each.model_dump_json()) for each in rows)
    journal.append(Entry(OVERTURNED, each.id, each.model_dump_json()) for each in overturned)
    contents = Contents(journal, SEED)
    contents.read()
    return Snapshot(contents, contents.sequence)


def ask(
    *rows: Evidence,
    technique: str | Optimization = WIDER,
    context: PolicyContext = HERE,
    state: PerformanceState = DRAM,
    overturned: Iterable[Overturned] = (),
) -> Prospect:
    card = SEED.techniques.get(technique) if isinstance(technique, str) else technique
    policy = snapshot_of(rows, overturned).policy(context.device_kind)
    (found,) = policy.beliefs(state, [card or unknown_technique(str(technique))], context)
    return found


def expect(*rows: Evidence, **asked: Any) -> ExpectedGain:
    return ask(*rows, **asked).expected


def tries(gain: float | None, number: int = 3, **changes: Any) -> list[Evidence]:
    return [row(each, gain, task_id=f"task {each}", **changes) for each in range(number)]


# What is offered


def test_candidates_come_best_first_without_what_was_tried() -> None:
    policy = snapshot_of([]).policy("simulated")
    found = policy.candidates(DRAM, HERE)
    scores = [each.expected.score for each in found]
    assert scores == sorted(scores, reverse=True)
    names = [each.optimization.technique for each in found]
    assert len(set(names)) == len(names)
    assert set(SEED.optimizations[DRAM.id]) < set(names), "neighbours offer theirs too"
    some = names[1::3]
    alone = policy.candidates(DRAM, HERE, only=some)
    assert alone == [each for each in found if each.optimization.technique in some]
    tried = HERE.model_copy(update={"tried": (names[0],)})
    assert names[0] not in {each.optimization.technique for each in policy.candidates(DRAM, tried)}


def test_without_evidence_the_seed_orders_first_uses_alone() -> None:
    good, bad = (
        unknown_technique(name).model_copy(update={"prior_log_gain": gain})
        for name, gain in (("good", 0.8), ("bad", -0.3))
    )
    assert expect(technique=good).score > expect(technique="never heard of").score
    assert expect(technique="never heard of").score > expect(technique=bad).score
    again = at_hand(applied=(("good", "rows", {}),))
    assert expect(technique=good, context=again) == expect(context=again, technique="another")


def test_a_technique_only_evidence_knows_is_offered() -> None:
    rows = tries(0.4, technique="tma_loads", author="model")
    snapshot = snapshot_of(rows)
    found = {
        each.optimization.technique: each.expected
        for each in snapshot.policy("simulated").candidates(DRAM, HERE)
    }
    assert found["tma_loads"].mean_log > 0.1
    measured = snapshot.policy("cuda").candidates(DRAM, MEASURED)
    assert "tma_loads" not in {each.optimization.technique for each in measured}


def test_a_discovered_state_borrows_from_its_neighbours() -> None:
    found = DRAM.model_copy(update={"id": "found_dram_x", "origin": "discovered"})
    offered = {
        each.optimization.technique: each.optimization
        for each in snapshot_of([]).policy("simulated").candidates(found, HERE)
    }
    own = SEED.optimizations[DRAM.id][WIDER]
    assert offered[WIDER].prior_log_gain == own.prior_log_gain / 2


# What is expected


def test_gains_raise_slowdowns_lower_and_failures_make_doubtful() -> None:
    before, better, worse, failing = (
        expect(*rows) for rows in ([], tries(0.5), tries(-0.3), tries(None))
    )
    assert better.score > before.score > worse.score
    assert failing.score < before.score and failing.mean_log == pytest.approx(before.mean_log)
    assert failing.success_probability < 0.5 < before.success_probability
    assert (before.trials, better.trials, failing.trials) == (0.0, 3.0, 0.0)


def test_what_is_not_the_technique_s_fault_does_not_count() -> None:
    for outcome in ("profiler_unavailable", "no_answer", "not_applicable"):
        assert expect(row(0, None, outcome=outcome)) == expect()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"signature_before": STATES["lsu_bound_matmul"].centroid},
        {"op_class": "matmul"},
        {"dtype": "float16"},
        {"standard_error": 0.3},
        {"gpu": "A100", "arch": "sm_80", "family": "ampere"},
        {"author": "a model"},
        {"harness": "1"},
        {"device_kind": "cuda"},
        {"earlier": {"width": 2}},
    ],
)
def test_evidence_from_elsewhere_counts_less(elsewhere: dict[str, object]) -> None:
    context = HERE.model_copy(update={"harness": "2"})
    here = [row(0, 1.0, signature_before=DRAM.centroid, harness="2")]
    there = [here[0].model_copy(update=elsewhere)]
    gains = [expect(*rows, context=context).mean_log for rows in (here, there, [])]
    assert gains == sorted(gains, reverse=True) and len(set(gains)) == 3


def test_the_state_s_name_decides_nothing() -> None:
    rows = tries(0.7)
    renamed = [each.model_copy(update={"state_before": "somewhere"}) for each in rows]
    assert expect(*rows) == expect(*renamed)


def test_a_weak_model_s_failures_do_not_move_the_library_s_forecast() -> None:
    failing = tries(None, 8, author="weak model")
    assert expect(*tries(0.4), *failing) == expect(*tries(0.4))
    weak = HERE.model_copy(update={"writer": "weak model"})
    assert expect(*failing, context=weak).success_probability < 0.3
    # Who stands in for a model is the library.
    stood_in = tries(None, author="builtin (weak model failed: no code)")
    assert expect(*stood_in).success_probability < 0.5


def test_the_same_fact_told_twice_is_one_fact() -> None:
    once = row(0, 0.5)
    again = once.model_copy(update={"run": "second", "rollout": 3})
    assert again.id != once.id
    assert expect(once, again) == expect(once)
    measured_anew = again.model_copy(update={"log_gain": 0.6})
    assert expect(once, measured_anew).trials == 2.0


def test_names_of_runs_and_order_of_rows_decide_nothing() -> None:
    rows = [
        row(number % 5, round(0.1 * (number % 5) - 0.1, 6), run=f"run {number}", rollout=number)
        for number in range(20)
    ]
    expected = expect(*rows)
    for shift in range(1, 5):
        renamed = [
            each.model_copy(update={"run": f"run {(number * 7 + shift) % 20}"})
            for number, each in enumerate(rows)
        ]
        assert expect(*renamed) == expect(*renamed[::-1]) == expected


def test_what_came_before_it_in_a_trajectory_decides_nothing() -> None:
    rows = tries(0.5)
    after = [each.model_copy(update={"previous_technique": "unroll_loop"}) for each in rows]
    assert expect(*rows) == expect(*after)


def test_a_prior_drawn_from_evidence_counts_it_once() -> None:
    rows = tries(0.4, technique="tma_loads")
    listed = unknown_technique("tma_loads").model_copy(
        update={"prior_log_gain": 0.9, "prior_evidence": tuple(each.id for each in rows)}
    )
    assert expect(*rows, technique=listed) == expect(*rows, technique="tma_loads")


def test_a_macro_expects_what_its_steps_gained_until_it_was_tried_itself() -> None:
    macro = unknown_technique("both").model_copy(
        update={
            "prior_log_gain": 0.8, "prior_evidence": ("first", "second"),
            "steps": (MacroStep(technique=WIDER), MacroStep(technique="fast_math")),
        }
    )  # fmt: skip
    plain = macro.model_copy(update={"prior_evidence": ()})
    assert expect(technique=macro) == expect(technique=plain)
    assert expect(technique=macro).mean_log == pytest.approx(0.4)
    assert expect(*tries(-0.2, 6, technique="both"), technique=macro).mean_log < 0.0


def test_what_was_overturned_counts_as_a_failure_from_then_on() -> None:
    rows = tries(0.8, 1)
    vetoed = [Overturned(evidence=rows[0].id, outcome="vetoed", reason="it skips the work")]
    after = expect(*rows, overturned=vetoed)
    assert after == expect(row(0, None, task_id="task 0"))
    assert after.score < expect().score < expect(*rows).score
    snapshot = snapshot_of(rows, vetoed)
    before = Snapshot(snapshot._contents, 1)
    card = SEED.techniques[WIDER]
    policies = (before.policy("simulated"), snapshot_of(rows).policy("simulated"))
    assert policies[0].beliefs(DRAM, [card], HERE) == policies[1].beliefs(DRAM, [card], HERE)


def test_who_overturns_may_come_before_the_row() -> None:
    """As where bases are merged."""
    rows = tries(0.8, 1)
    vetoed = Overturned(evidence=rows[0].id, outcome="unconfirmed", reason="slower again")
    journal = Journal(Path(":memory:"))
    journal.append([Entry(OVERTURNED, vetoed.id, vetoed.model_dump_json())])
    journal.append([Entry(EVIDENCE, rows[0].id, rows[0].model_dump_json())])
    contents = Contents(journal, SEED)
    contents.read()
    (found,) = Snapshot(contents, 2).policy("simulated").beliefs(
        DRAM, [SEED.techniques[WIDER]], HERE
    )
    assert found.expected == expect(*rows, overturned=[vetoed])


# Actions: settings and targets


def test_settings_come_by_what_is_expected_of_them_and_the_first_is_what_is_told() -> None:
    rows = [
        each
        for size, gain in ((64, 0.5), (1024, -0.7))
        for each in tries(
            gain, technique="tune_block_size", parameters={"block_size": size}, child_sha256="c"
        )
    ]
    found = ask(*rows, technique="tune_block_size")
    assert found.settings[0] == {"block_size": 64} and found.settings[-1] == {"block_size": 1024}
    values = [each.value for each in found.forecasts]
    assert values == sorted(values, reverse=True)
    assert found.expected.mean_log == found.forecasts[0].mean
    assert [each["block_size"] for each in ask(technique="tune_block_size").settings][0] == 128


def test_a_gain_is_capped_by_its_target_and_the_target_is_where_it_promises_most() -> None:
    launches = (launch("large", 0.7), launch("small", 0.3))
    two = at_hand(launches=launches)
    rows = tries(2.0, 5)
    found = ask(*rows, context=two)
    assert found.launch == "large"
    assert found.expected.mean_log <= found.expected.most_log == pytest.approx(-math.log(0.3))
    aimed = ask(*rows, context=at_hand(launches=launches, targets={WIDER: "small"}))
    assert aimed.launch == "small" and aimed.expected.mean_log < found.expected.mean_log
    near = at_hand(bound_us=90.0)
    assert expect(*rows, context=near).mean_log <= math.log(100.0 / 90.0) + 1e-9


def test_what_was_refused_in_this_run_is_out_in_every_state() -> None:
    narrow, wide = ({"width": width} for width in (2, 4))
    one = ((WIDER, "rows", setting_name(wide)),)
    once = at_hand(refused=one)
    policy = snapshot_of([]).policy("simulated")
    for state in (DRAM, L2, STATES["lsu_bound_matmul"]):
        (found,) = policy.beliefs(state, [SEED.techniques[WIDER]], once)
        assert found.settings == (narrow,)
    renamed = at_hand(refused=one, launches=(launch("another name"),))
    assert ask(context=renamed).settings == (narrow,), "a program's only kernel, whatever its name"
    all_of = (*one, (WIDER, "rows", setting_name(narrow)))
    names = {
        each.optimization.technique for each in policy.candidates(DRAM, at_hand(refused=all_of))
    }
    assert names and WIDER not in names
    elsewhere = at_hand(refused=all_of, launches=(launch("rows", 0.5), launch("others", 0.5)))
    assert ask(context=elsewhere).launch == "others"


def test_what_failed_on_this_very_source_before_is_out() -> None:
    failed = row(
        0, None, task_id="here", parent_sha256="source", parameters={"width": 4}, launch="rows"
    )
    assert ask(failed, context=at_hand()).settings == ({"width": 2},)
    assert len(ask(failed, context=at_hand(source_sha256="another")).settings) == 2


def test_a_rollout_knows_its_own_steps_and_nobody_else_s() -> None:
    rows = tries(0.2, 2)
    own = [row(9, -0.6, task_id="here", step=1), row(9, 0.9, task_id="here", rollout=1)]
    snapshot = snapshot_of([*rows, *own])
    early = Snapshot(snapshot._contents, len(rows)).policy("simulated")
    card = SEED.techniques[WIDER]
    context = at_hand(own=(own[0].id, "not written"))
    assert early.beliefs(DRAM, [card], context) == [ask(*rows, own[0], context=at_hand())]


def test_a_policy_rebuilt_equals_one_updated_step_by_step() -> None:
    rows = [
        row(
            number, None if number % 4 == 3 else 0.3 * (number % 3) - 0.2, rollout=number % 2,
            task_id=f"task {number % 3}", expected_log_gain=0.4, forecast_std=0.2,
        )
        for number in range(12)
    ]  # fmt: skip
    vetoed = Overturned(evidence=rows[1].id, outcome="vetoed", reason="it skips the work")
    journal = Journal(Path(":memory:"))
    contents = Contents(journal, SEED)
    card = SEED.techniques[WIDER]
    told = []
    for each in (*rows, vetoed):
        kind = EVIDENCE if isinstance(each, Evidence) else OVERTURNED
        journal.append([Entry(kind, each.id, each.model_dump_json())])
        contents.read()
        policy = Snapshot(contents, contents.sequence).policy("simulated")
        told.append(policy.beliefs(DRAM, [card], HERE))
    anew = Contents(journal, SEED)
    anew.read()
    for number, found in enumerate(told, 1):
        assert Snapshot(anew, number).policy("simulated").beliefs(DRAM, [card], HERE) == found


# Draws, rows


def test_thompson_sampling_is_reproducible_and_centred_on_the_belief() -> None:
    belief = expect(*tries(0.5, 20))
    draws = [thompson_sample(belief, np.random.default_rng(seed)) for seed in range(2000)]
    again = [thompson_sample(belief, np.random.default_rng(seed)) for seed in range(2000)]
    assert draws == again
    assert np.mean(draws) == pytest.approx(belief.score, abs=0.03)


def test_an_unpromising_technique_is_still_chosen_sometimes() -> None:
    good, poor = expect(*tries(0.4)), expect(*tries(0.05))
    wins = sum(
        thompson_sample(poor, np.random.default_rng([seed, 1]))
        > thompson_sample(good, np.random.default_rng([seed, 2]))
        for seed in range(500)
    )
    assert 0 < wins < 250


def test_an_expectation_of_an_earlier_version_is_read() -> None:
    told: Mapping[str, Any] = {
        "mean_log": 0.3, "std_log": 0.1, "success_probability": 0.75, "trials": 4.0,
        "failures": 1.0, "prepared_log": 0.1, "score": 0.2,
        "posterior": {"mean": 0.3, "strength": 2.0, "shape": 2.0, "scale": 1.0, "passes": 3.0,
                      "failures": 1.0},
    }  # fmt: skip
    found = ExpectedGain.model_validate(told)
    assert (found.passed, found.failed, found.mean_log) == (3.0, 1.0, 0.3)


def test_only_a_pass_has_a_gain() -> None:
    for outcome, gain in (("passed", None), ("crashed", 0.1), ("odd", None)):
        with pytest.raises(ValidationError):
            row(0, gain, outcome=outcome)


def test_rows_keep_the_ids_that_earlier_versions_gave_them() -> None:
    assert row(created="2026-01-01").id == row(created="2027-01-01").id
    assert row(0).id != row(1).id
    plain = row(0)
    content = plain.model_dump(mode="json", exclude={"created", *LATER_FIELDS})
    assert plain.id == sha256_of_json(["evidence", content])
    for name, value in (("harness", "2"), ("launch", "rows"), ("earlier", {}), ("bound_us", 5.0)):
        assert row(0, **{name: value}).id != plain.id
