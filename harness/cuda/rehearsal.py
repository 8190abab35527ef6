"""The trusted work of a stage without any candidate, to see whether memory suffices for it."""

from __future__ import annotations

import time

from ..tensor_comparison import compare
from .buffers import PAINTINGS, Buffers
from .machine import Machine
from .measure_run import DRAW_SECONDS, SETS
from .task_context import Plan, TaskContext, values_of


def rehearse(machine: Machine, context: TaskContext, work: str) -> None:
    """Hold and compute what verifying (`verify`) or timing (`measure`) a candidate takes.

    Raises torch.OutOfMemoryError or ReferenceFault where that does not fit.
    """
    plans = context.plans()
    if work == "measure":
        _one_case(machine, context, plans[0], SETS, timed=True)
        return
    for plan in plans:
        _one_case(machine, context, plan, 1, timed=False)


def _one_case(
    machine: Machine, context: TaskContext, plan: Plan, count: int, *, timed: bool
) -> None:
    began = time.monotonic()
    instances = [context.instance(plan.how) for _ in range(count)]
    machine.finish_device()
    slow = time.monotonic() - began > count * DRAW_SECONDS
    # As measuring keeps them where drawing anew takes long.
    originals = [
        value.clone() for each in instances for value in values_of(each).values() if timed and slow
    ]
    made = [Buffers(context.tensors, 0, machine.device) for _ in range(count)]
    for place, (each, instance) in enumerate(zip(made, instances, strict=True)):
        each.fill(values_of(instance), place=place, painting=PAINTINGS[0])
    if timed:
        context.baseline().refresh(values_of(instances[0]))
        context.baseline().eager()
    results = [made[0].outputs() for _ in range(1 if timed else 2)]
    expected = context.answers(instances[0])
    exact = context.exact_answers(instances[0]) if plan.exact and not timed else []
    for got, wanted, tolerance in zip(results[0], expected, plan.tolerances, strict=True):
        compare(got, wanted, tolerance, "")
    machine.finish_device()
    del originals, exact, results
