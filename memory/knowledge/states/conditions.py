"""Facts of a kernel at hand, under the names that conditions of optimizations and lessons use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from ....harness.gpus import architecture_family
from ....harness.records.evaluations import DeviceIdentity
from ....harness.records.profiles import Bottleneck, LaunchProfile, Profile
from ....harness.records.tasks import Task
from ....harness.task.operator_graph import operator_name
from ...records.conditions import Condition, Fact
from ...records.evidence import Circumstances, Evidence
from .dimensions import DIMENSIONS
from .measures import blocks_per_sm
from .signature import bottlenecks_of, completed, named, signature_of

KernelFacts = Mapping[str, Fact]
"""What is known of a kernel; a name that is missing is not known."""

BEYOND_SIGNATURE: Mapping[str, str] = {
    "op_class": "class of the task's operation: elementwise, reduction, matmul, ...",
    "operators": "operators of the task's graph, such as mm, softmax, relu",
    "dtype": "type of the task's elements",
    "elements": "elements of the largest tensor",
    "innermost": "size of the last dimension of the largest input",
    "device_kind": "simulated, cuda or deferred",
    "gpu": "name of the GPU",
    "arch": "its architecture, such as sm_90",
    "family": "family of the architecture, such as hopper",
    "capability": "compute capability as a number, such as 9.0",
    "primary": "what holds the longest launch back first",
    "secondary": "what holds it back next",
    "microseconds": "time of the program",
    "headroom": "time over the bound of the task: 1 is as fast as can be",
    "launches": "launches of the program",
    "share": "share of the time that the kernel of the longest launch takes",
    "blocks": "blocks of the longest launch",
    "blocks_per_sm": "its blocks over the GPU's SMs: below 1 some have none",
    "threads": "threads of a block of it",
    "waves": "waves that its blocks make: below 1 the GPU could hold more of them",
    "registers": "registers of a thread of it",
    "shared_bytes": "bytes of shared memory of a block of it",
    "applied": "techniques that gained on the way to the kernel",
    "writer": "who writes what comes next: builtin, or a model by name",
}
"""Names of facts that are no dimension of the signature, with what they say."""
FEATURES: Mapping[str, str] = {
    **{each.name: f"{each.words.format('x')} (x from 0 to 1)" for each in DIMENSIONS},
    **BEYOND_SIGNATURE,
}
"""Every name that a condition may speak of."""
TELLING_STATES = frozenset(
    {each.name for each in DIMENSIONS}
    | {"op_class", "dtype", "device_kind", "gpu", "arch", "family", "capability"}
)
"""What is known of a launch before anybody says which state it is in: states are told by these."""
WORDS: Mapping[str, tuple[str, ...]] = {
    "primary": get_args(Bottleneck),
    "secondary": get_args(Bottleneck),
}
"""Of facts that are words, all there are where these are few."""
_OF_THE_PROGRAM = ("duration", "more_launches", "other_launches")
"""Dimensions that need no counters, as those that name the bottleneck do."""
_NOT_PROFILED = 0.0
"""All others stand here where no counter was read."""


def kernel_facts(
    task: Task,
    profile: Profile,
    device: DeviceIdentity,
    *,
    launch: LaunchProfile | None = None,
    bound_us: float | None = None,
    applied: Iterable[str] = (),
    writer: str = "",
) -> KernelFacts:
    """Return what is known of a kernel.

    Args:
        task: what it computes.
        profile: of the program.
        device: where it was profiled.
        launch: of the program's, the one meant; by default the longest.
        bound_us: microseconds that no kernel of the task can do without; None where not known.
        applied: techniques that gained on the way to it.
        writer: who writes what comes next; empty where that is not known.
    """
    launch = launch or profile.dominant
    primary, secondary = bottlenecks_of(profile, launch)
    tensors = task.full.tensors
    inputs = [tensor.shape for tensor in tensors if tensor.role == "input" and tensor.shape]
    facts: dict[str, Fact] = signature_facts(
        signature_of(profile, launch, bound_us=bound_us).values
    )
    facts |= _device_facts(device.kind, device.gpu, device.arch)
    facts |= {
        "op_class": task.op_class,
        "dtype": task.dtype,
        "elements": float(max((math.prod(tensor.shape) for tensor in tensors), default=0)),
        "primary": primary,
        "launches": float(len(profile.launches)),
        "blocks": float(math.prod(launch.grid)),
        "threads": float(math.prod(launch.block)),
        "applied": frozenset(applied),
    }
    if task.program is not None:
        facts["operators"] = operators(task)
    if inputs:
        facts["innermost"] = float(max(inputs, key=math.prod)[-1])
    if secondary is not None:
        facts["secondary"] = secondary
    if writer:
        facts["writer"] = writer
    if profile.microseconds > 0:
        facts["microseconds"] = profile.microseconds
        own = (each.microseconds for each in profile.launches if each.kernel == launch.kernel)
        facts["share"] = math.fsum(own) / profile.microseconds
        if bound_us:
            facts["headroom"] = profile.microseconds / bound_us
    if (each := blocks_per_sm(profile, launch)) is not None:
        facts["blocks_per_sm"] = each
    for name, metric in (
        ("waves", "launch__waves_per_multiprocessor"),
        ("registers", "launch__registers_per_thread"),
    ):
        if metric in launch.metrics:
            facts[name] = launch.metrics[metric]
    static = launch.metrics.get("launch__shared_mem_per_block_static")
    if static is not None:
        facts["shared_bytes"] = static + launch.dynamic_shared_bytes
    return facts


def evidence_facts(row: Evidence) -> KernelFacts:
    """Return what a row of evidence says of the kernel that its technique was applied to."""
    return {
        **signature_facts(row.signature_before), **circumstance_facts(row), "writer": row.author
    }  # fmt: skip


def evidence_figures(rows: Sequence[Evidence]) -> dict[str, tuple[float, ...]]:
    """Return the figures of `evidence_facts` that are known of all rows, by name, each in order of
    the rows."""
    columns = zip(*(completed(row.signature_before) for row in rows), strict=True)
    found = {
        dimension.name: column
        for dimension, column in zip(DIMENSIONS, columns, strict=False)
        if min(column) >= 0.0
    }
    if all(_counted(row.signature_before) for row in rows):
        return found
    return {name: column for name, column in found.items() if _needs_no_counter(name)}


def circumstance_facts(where: Circumstances) -> KernelFacts:
    """Return what is known of every kernel of a task on a device."""
    facts = _device_facts(where.device_kind, where.gpu, where.arch)
    return facts | {"op_class": where.op_class, "dtype": where.dtype}


def operators(task: Task) -> frozenset[str]:
    """Return the operators of a task's graph, without namespace, overload and underscore."""
    nodes = task.program.nodes if task.program is not None else ()
    return frozenset(operator_name(node.op) for node in nodes)


def unmet(conditions: Iterable[Condition], facts: KernelFacts) -> Condition | None:
    """Return the first condition that is known not to be so of a kernel; None where there is
    none."""
    return next((each for each in conditions if each.holds(facts) is False), None)


def misnamed(condition: Condition) -> str | None:
    """Return why nothing could ever be said of a condition; None where something can."""
    if condition.feature not in FEATURES:
        return f"no fact is called {condition.feature}"
    known = WORDS.get(condition.feature)
    said = (condition.value,) if isinstance(condition.value, str) else condition.value
    if known and isinstance(said, tuple) and (odd := [word for word in said if word not in known]):
        return f"{condition.feature} is never {', '.join(odd)}"
    return None


def _device_facts(kind: str, gpu: str, arch: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "device_kind": kind, "gpu": gpu, "arch": arch, "family": architecture_family(arch),
    }  # fmt: skip
    if found := re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch):
        facts["capability"] = float(f"{found[1]}.{found[2]}")
    return facts


def signature_facts(values: Sequence[float]) -> dict[str, Fact]:
    """Return what is known of the dimensions by name; where an older row has no counter, those
    alone that need none."""
    known = named(values)
    if _counted(values):
        return dict(known)
    return {name: value for name, value in known.items() if _needs_no_counter(name)}


def _counted(values: Sequence[float]) -> bool:
    """Say whether counters were read."""
    return any(values[at] > _NOT_PROFILED for at in _BY_COUNTERS if at < len(values))


def _needs_no_counter(name: str) -> bool:
    return name in _OF_THE_PROGRAM or name.startswith("bound_")


_BY_COUNTERS = tuple(
    at for at, each in enumerate(DIMENSIONS) if not _needs_no_counter(each.name)
)
"""Places of the dimensions that need counters."""
