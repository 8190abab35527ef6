"""What is expected of an action follows evidence near it, within what launch and bound allow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from kernelblaster.memory.knowledge.expectation import (
    Action,
    Expectations,
    Forecast,
    Question,
    Situation,
    Tried,
    most_gain,
)
from kernelblaster.memory.knowledge.failures import Failures
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
    assert more.tries == 0 and more.spread > 0.5


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
    failures = Failures()
    for number in range(4):
        failures.add("unroll_loop", "matmul", "weak model", "wrong_answer", False, number)
        failures.add("unroll_loop", "matmul", "builtin", "", True, f"own {number}")
    weak, own = (
        failures.reliability("unroll_loop", "matmul", who).probability
        for who in ("weak model", "builtin")
    )
    assert weak < 0.45 < 0.8 < own
    assert failures.reasons("unroll_loop", "matmul", "weak model") == {"wrong_answer": 4}


def test_three_failures_outvote_many_false_passes() -> None:
    failures = Failures()
    for number in range(40):
        failures.add("fast_math", "softmax", "builtin", "", True, number)
    for number in range(3):
        failures.add("fast_math", "softmax", "builtin", "wrong_answer", False, f"no {number}")
    assert failures.reliability("fast_math", "softmax", "builtin").probability < 0.6
