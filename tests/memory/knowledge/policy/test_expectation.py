"""What is expected of an action follows evidence near it, within what launch and bound allow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelblaster.memory.knowledge.policy.actions import (
    Action,
    Forecast,
    Question,
    Situation,
    Tried,
    most_gain,
)
from kernelblaster.memory.knowledge.policy.expectation import Expectations
from kernelblaster.memory.knowledge.policy.failures import believed
from kernelblaster.tools.techniques.catalogue import knowledge_seed

CENTROIDS = {state.id: state.centroid for state in knowledge_seed().states}
HERE = Situation(
    task="here", op_class="elementwise", dtype="float32", gpu="H100", family="hopper",
    simulated=True, signature=CENTROIDS["dram_bandwidth_bound"], share=1.0, microseconds=100.0,
    bound_us=5.0,
)  # fmt: skip
WIDER = Action("vectorize_memory_access", setting={"width": 4})


def told(*rows: Tried) -> Expectations:
    found = Expectations()
    for row in rows:
        found.add(row)
    return found


def tried(
    gain: float | None,
    task: str = "other",
    action: Action = WIDER,
    number: int = 0,
    **changes: Any,
) -> Tried:
    situation = HERE._replace(task=task, source=f"{task} {number}")._replace(**changes)
    return Tried(situation, action, gain, "" if gain is not None else "wrong_answer")


def ask(
    rows: Iterable[Tried], action: Action = WIDER, prior: float = 0.0, **changes: Any
) -> Forecast:
    here = HERE._replace(**changes)
    return told(*rows).forecasts([Question(here, action, prior)])[0]


def test_without_tries_what_was_believed_decides_and_all_is_uncertain() -> None:
    more, less = ask([], prior=0.4), ask([], prior=0.1)
    assert more.value > less.value > ask([], prior=-0.2).value
    assert more.tries == 0 and more.spread > 0.4


def test_like_kernels_count_more_than_unlike_ones() -> None:
    alike = ask([tried(0.5)])
    unlike = ask([tried(0.5, signature=CENTROIDS["lsu_bound_matmul"], op_class="matmul")])
    assert 0.0 < unlike.mean < alike.mean < 0.5
    assert alike.spread < unlike.spread < ask([]).spread


def test_many_tries_of_one_task_are_no_independent_samples() -> None:
    one_task = ask([tried(0.5, number=number) for number in range(8)])
    many_tasks = ask([tried(0.5, task=f"task {number}") for number in range(8)])
    assert many_tasks.spread < one_task.spread


def test_a_repetition_is_another_action() -> None:
    again = WIDER._replace(earlier={"width": 2})
    rows = [tried(0.8, task=f"task {number}") for number in range(4)]
    assert ask(rows, again).mean < 0.5 * ask(rows).mean


def test_settings_have_gains_of_their_own() -> None:
    small, large = (Action("tune_block_size", setting={"block_size": n}) for n in (64, 1024))
    rows = [
        tried(gain, task=f"task {number}", action=action, number=index)
        for number in range(3)
        for index, (action, gain) in enumerate(((small, 0.4), (large, -0.6)))
    ]
    assert ask(rows, small).mean > 0.2 > -0.2 > ask(rows, large).mean


def test_a_gain_is_capped_by_the_share_of_the_time_and_by_the_bound() -> None:
    rows = [tried(2.0, task=f"task {number}") for number in range(6)]
    assert ask(rows, share=0.5).mean <= math.log(2.0) + 1e-9
    assert ask(rows, bound_us=90.0).mean <= math.log(100.0 / 90.0) + 1e-9
    assert most_gain(HERE._replace(bound_us=None)) == math.inf
    stream = np.random.default_rng(0)
    capped = ask(rows, share=0.5)
    assert all(capped.sample(stream) <= math.log(2.0) for _ in range(50))


def test_simulated_tries_are_worth_one_measured_at_most() -> None:
    simulated = [tried(1.0, task=f"task {number}") for number in range(30)]
    measured = [tried(-0.2, task=f"real {number}", simulated=False) for number in range(4)]
    alone = ask(simulated, simulated=False)
    assert 0.3 < alone.mean < 1.0 and alone.spread > ask(simulated).spread
    assert ask([*simulated, *measured], simulated=False).mean < 0.1


def test_a_gpu_is_one_under_our_name_and_under_its_drivers() -> None:
    ours, other = [tried(0.8)], [tried(0.8, gpu="H200")]
    driver = "NVIDIA H100 80GB HBM3"
    assert ask(ours, gpu=driver) == ask(ours) == ask([tried(0.8, gpu=driver)])
    assert ask(other).mean < ask(ours).mean
    # A GPU that nothing is known of keeps its name.
    assert ask(ours, gpu="NVIDIA H100 PCIe") != ask(ours)


def test_what_is_told_again_counts_once() -> None:
    rows = [tried(0.5), tried(None, number=1)]
    assert ask(rows) == ask([*rows, *rows])
    assert len(told(*rows, *rows)) == 2


def test_what_was_refused_is_out_and_only_that() -> None:
    known = told(tried(None, task="here"), tried(0.3, task="here", number=1))
    there = HERE._replace(source="here 0")
    assert known.refused(there, WIDER)
    assert not known.refused(there, WIDER._replace(setting={"width": 2}))
    assert not known.refused(HERE._replace(source="here 1"), WIDER)


def test_one_draw_is_repeatable_and_draws_follow_the_forecast() -> None:
    forecast = ask([tried(0.5, task=f"task {number}") for number in range(5)])
    first, again = (forecast.sample(np.random.default_rng(3)) for _ in range(2))
    assert first == again
    stream = np.random.default_rng(1)
    draws = [forecast.sample(stream) for _ in range(2000)]
    assert np.mean(draws) == pytest.approx(forecast.value, abs=0.03)
    assert sum(forecast.chances(0.01)) == pytest.approx(1.0)


def test_answers_do_not_depend_on_what_else_is_asked() -> None:
    known = told(*(tried(0.1 * number, task=f"task {number}") for number in range(5)))
    asked = [Question(HERE, WIDER), Question(HERE, Action("unroll_loop"), 0.2)]
    together = known.forecasts(asked)
    assert together == [known.forecasts([each])[0] for each in asked]


def test_a_writer_s_failures_are_not_the_technique_s() -> None:
    weak = WIDER._replace(writer="weak model")
    failing = [tried(None, action=weak, number=number) for number in range(6)]
    passing = [tried(0.3, task=f"own {number}") for number in range(4)]
    assert ask([*passing, *failing]).passes == ask(passing).passes
    assert ask(failing).passes == ask([]).passes
    assert ask([*passing, *failing], weak).passes.probability < 0.45


def test_the_library_s_failures_are_heard_of_by_other_writers() -> None:
    failing = [tried(None, number=number) for number in range(6)]
    told_of = ask(failing, WIDER._replace(writer="model")).passes
    assert ask(failing).passes.probability < told_of.probability + 0.1 < 0.5


def test_three_failures_outvote_many_false_passes() -> None:
    passed = np.array([True] * 40 + [False] * 3)
    for runs in (np.full(43, -1), np.array([*range(40), 41, 42, 43])):
        assert believed([(passed, runs.astype(np.int32))]).probability < 0.6


def test_many_false_rows_of_one_run_are_few_witnesses() -> None:
    """Not of many runs, nor what fails on this very task: that counts each."""
    true = [tried(0.06, f"task {n}", number=n)._replace(run=f"run {n}") for n in range(8)]
    lies = [
        tried(None, f"never {n % 3}", number=100 + n)._replace(run="lie") for n in range(20)
    ]
    before, slandered = ask(true), ask([*true, *lies])
    assert before.passes.probability > 0.9 and slandered.passes.probability > 0.6
    assert slandered.value > 0, "still worth a try, so that the truth comes out"
    others = [each._replace(run=f"run {100 + n}") for n, each in enumerate(lies)]
    assert ask([*true, *others]).passes.probability < 0.1
    here = [tried(None, "here", number=200 + n)._replace(run="own") for n in range(3)]
    assert ask([*true, *here], task="here").passes.probability < 0.45


def test_an_outlook_stays_what_it_was() -> None:
    rows = [tried(0.1 * number, task=f"task {number}") for number in range(6)]
    known = told(*rows[:3])
    early = known.at(3).forecasts([Question(HERE, WIDER)])
    for row in rows[3:]:
        known.add(row)
    assert known.at(3).forecasts([Question(HERE, WIDER)]) == early
    assert early == told(*rows[:3]).forecasts([Question(HERE, WIDER)])
    assert known.forecasts([Question(HERE, WIDER)]) != early


def test_what_was_told_under_a_name_can_be_known_before_its_number() -> None:
    known = told(tried(0.1))
    for number in (1, 2):
        known.add(tried(-0.4 * number, task="here", number=number), name=f"row {number}")
    seen = known.at(1, ["row 2"]).forecasts([Question(HERE, WIDER)])
    assert seen == told(tried(0.1), tried(-0.8, task="here", number=2)).forecasts(
        [Question(HERE, WIDER)]
    )


@given(st.permutations(range(8)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_arrival_decides_nothing(order: list[int]) -> None:
    rows = [
        tried(
            None if number % 3 == 2 else 0.2 * (number % 6) - 0.5,
            task=f"task {number % 3}", number=number % 6,
        )._replace(made=(number,), expected=0.9)
        for number in range(8)
    ]  # fmt: skip
    assert len(told(*rows)) == 6
    assert ask(rows[place] for place in order) == ask(rows)


def test_what_was_overturned_failed() -> None:
    known = told()
    known.add(tried(0.8, task="here"), 1, "first")
    known.add(tried(0.1, task="there"), 2, "second")
    before = known.at(2).forecasts([Question(HERE, WIDER)])
    known.overturn("first", tried(0.8, task="here")._replace(reason="vetoed"), 3)
    assert known.at(2).forecasts([Question(HERE, WIDER)]) == before
    otherwise = told(tried(0.1, task="there"), tried(None, task="here"))
    assert known.forecasts([Question(HERE, WIDER)]) == otherwise.forecasts([Question(HERE, WIDER)])
    assert known.refused(HERE._replace(source="here 0"), WIDER)


def test_another_harness_s_tries_are_worth_one_together() -> None:
    older = [tried(1.0, task=f"task {number}", harness="1") for number in range(30)]
    here = ask([tried(1.0, harness="2"), *older[:1]], harness="2")
    assert ask(older, harness="2").spread > ask(older, harness="1").spread
    assert ask(older).spread == pytest.approx(ask(older, harness="1").spread)
    again = ask([tried(1.0, harness="2"), tried(1.0, harness="1")], harness="2")
    assert again.spread <= here.spread + 0.05
    known = told(tried(None, task="here", harness="1"))
    there = HERE._replace(source="here 0", harness="2")
    assert not known.refused(there, WIDER) and known.refused(there._replace(harness="1"), WIDER)
