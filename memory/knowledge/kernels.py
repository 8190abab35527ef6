"""Kernels seen: tasks by what they compute, kernels that won, and what was tried on which."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field

from ...harness.records.identity import sha256_of_json
from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from ...harness.records.tasks import Task, TaskVariant
from ...harness.task.names import constants_of
from ...harness.task.operator_graph import operator_graph
from ..records.evidence import Evidence
from ..records.identity import Author

MOST_SOURCES = 512
"""Winning sources that a knowledge base keeps: the best of each task before any second."""
LARGEST_SOURCE = 256 << 10
"""Bytes of a source that is kept."""
ALIKE = 0.5
"""Share of operators in common from which a kernel of another graph is worth being shown."""

Nearness = Literal["same", "resized", "related"]
"""Of a task at hand to the one that a kernel was written for: the same (by its id, or by operators
and shapes), the same operators at other sizes, or operators in common."""


class TaskSeen(Record):
    """A task as the memory of kernels knows it."""

    task_id: str
    name: str
    op_class: str
    dtype: str
    operator_graph: str
    """Its operators under one name (`harness.task.operator_graph`); empty where unknown."""
    operators: tuple[str, ...]
    """Names of the operators, sorted, each as often as it stands in the graph."""
    full: TaskVariant
    """Tensors, dimensions and scalars at full size, under the task's own names."""

    @classmethod
    def of(cls, task: Task) -> TaskSeen:
        """Return what is kept of a task."""
        graph = operator_graph(task)
        return cls(
            task_id=task.id,
            name=task.name,
            op_class=task.op_class,
            dtype=task.dtype,
            operator_graph=graph.sha256,
            operators=graph.operators,
            full=task.full,
        )

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["task", self.model_dump(mode="json")])

    @property
    def shapes(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Role, type and shape of each tensor: with the operators, all that a kernel depends on."""
        return tuple((each.role, each.dtype, each.shape) for each in self.full.tensors)

    @property
    def shape_class(self) -> str:
        """Sizes of the largest tensor, each to the nearest power of two: 4096x1024."""
        largest = max(self.full.tensors, key=lambda each: each.numel)
        sizes = (1 << round(math.log2(max(1, size))) for size in largest.shape)
        return "x".join(map(str, sizes)) or "1"


class KnownKernel(Record):
    """A kernel that won a run and held when it was measured again. Append-only."""

    task_id: str
    source_sha256: str
    """Its text is kept apart, as long as there is room."""
    microseconds: float = Field(gt=0)
    """Of the kernel, as the run announced it."""
    first_us: float | None = Field(default=None, gt=0)
    """Of the run's plain first kernel; None where there was none."""
    bound_us: float | None = None
    """That no kernel of the task can be faster than on the GPU; None where that is not known."""
    device_kind: str
    """simulated, cuda or deferred: times of the first and of the others are never compared."""
    gpu: str
    arch: str
    harness: str
    """Versions of the judge and of the device that measured."""
    toolchain: str
    author: Author
    """Who wrote it."""
    techniques: tuple[str, ...] = ()
    """From the first kernel to it, in order."""
    run: str
    """Id of the run."""
    created: str = ""
    """Wall time, ISO 8601; not part of the identity."""

    @property
    def id(self) -> str:
        """Identity: everything but the wall time."""
        return sha256_of_json(["kernel", self.model_dump(mode="json", exclude={"created"})])

    @property
    def bound_share(self) -> float | None:
        """Share of the speed of light that it reaches."""
        return None if self.bound_us is None else self.bound_us / self.microseconds

    @property
    def gain(self) -> float | None:
        """Time of the run's first kernel over its own."""
        return None if self.first_us is None else self.first_us / self.microseconds

    @property
    def place(self) -> tuple[str, str, str]:
        """Whose times may be compared: those of one task, kind of device and GPU."""
        return self.task_id, self.device_kind, self.gpu


class Found(NamedTuple):
    """A known kernel that bears on a task at hand."""

    kernel: KnownKernel
    task: TaskSeen
    nearness: Nearness


class Tried(NamedTuple):
    """An action on a kernel, and what came of it as often as it was tried."""

    technique: str
    parameters: Mapping[str, Any]
    launch: str
    """Kernel of the program that it was meant for; empty where nobody noted it."""
    outcome: Outcome
    log_gain: float | None
    """Median over the tries; None where it did not pass."""
    tries: int
    parent_sha256: str
    child_sha256: str | None
    gpu: str
    device_kind: str
    authors: tuple[str, ...]


class Kernels:
    """Tasks and winning kernels, only ever added to, in order of sequence; all is read up to a
    number."""

    def __init__(self) -> None:
        self._tasks: dict[str, list[tuple[int, TaskSeen]]] = {}
        self._won: list[tuple[int, KnownKernel]] = []

    def add_task(self, sequence: int, task: TaskSeen) -> None:
        """Take a task."""
        self._tasks.setdefault(task.task_id, []).append((sequence, task))

    def add_kernel(self, sequence: int, kernel: KnownKernel) -> None:
        """Take a kernel that won."""
        self._won.append((sequence, kernel))

    @property
    def count(self) -> int:
        """How many kernels won."""
        return len(self._won)

    def tasks(self, at: int) -> list[TaskSeen]:
        """Return the tasks; of one that was told under several names, the first by content."""
        told = [
            [task for sequence, task in each if sequence <= at] for each in self._tasks.values()
        ]
        return [min(each, key=lambda task: task.id) for each in told if each]

    def won(self, at: int, task_id: str | None = None) -> list[KnownKernel]:
        """Return the kernels that won, of all tasks or of one, in order of arrival."""
        return [
            kernel for sequence, kernel in self._won
            if sequence <= at and task_id in (None, kernel.task_id)
        ]  # fmt: skip

    def indexed(self) -> list[tuple[int, KnownKernel, TaskSeen | None]]:
        """Return each source that won on a kind of device once: when it did first, and on what."""
        first: dict[tuple[str, bool], tuple[int, KnownKernel]] = {}
        for sequence, kernel in self._won:
            key = kernel.source_sha256, kernel.device_kind == "simulated"
            first.setdefault(key, (sequence, kernel))
        known = {task_id: told[0][1] for task_id, told in self._tasks.items()}
        return [(number, each, known.get(each.task_id)) for number, each in first.values()]

    def bearing_on(self, task: TaskSeen, device_kind: str, gpu: str, at: int) -> list[Found]:
        """Return the known kernels that bear on a task, the most promising first, each source once.

        Those of the same task come first, then those of the same operators at the nearest sizes,
        then those with the most operators in common; among these, those that won on this GPU, then
        on others of its kind. Times are compared where they can be: on one task and GPU.
        """
        known = {each.task_id: each for each in self.tasks(at)}
        ranked: list[tuple[tuple[Any, ...], Found]] = []
        for (task_id, kind, on), sources in _by_place(self.won(at)).items():
            seen = known.get(task_id)
            nearness = None if seen is None else _nearness(task, seen)
            if seen is None or nearness is None:
                continue
            foreign = (kind == "simulated") != (device_kind == "simulated")
            apart = _apart(task, seen) if nearness == "resized" else -_shared(task, seen)
            near = ("same", "resized", "related").index(nearness), apart
            ranked += [
                ((*near, on != gpu, foreign, rank, kernel.source_sha256),
                 Found(kernel, seen, nearness))
                for rank, kernel in enumerate(sources)
            ]  # fmt: skip
        first: dict[str, Found] = {}
        for _, found in sorted(ranked, key=lambda each: each[0]):
            first.setdefault(found.kernel.source_sha256, found)
        return list(first.values())


def worth_keeping(kernels: Iterable[KnownKernel], most: int = MOST_SOURCES) -> set[str]:
    """Return the sources that are kept where there is no room for all: the worst go first.

    The best of each task and GPU come before any second; among equals, those that gained more.
    """
    order = [
        (rank, -(kernel.gain or 0.0), kernel.source_sha256)
        for sources in _by_place(kernels).values()
        for rank, kernel in enumerate(sources)
    ]
    kept: set[str] = set()
    for *_, source in sorted(order):
        if len(kept) >= most:
            break
        kept.add(source)
    return kept


def tried_on(
    rows: Iterable[Evidence], task_id: str, source_sha256: str | None = None
) -> list[Tried]:
    """Return what was tried on a task's kernels: each action on a kernel once for each outcome.

    Args:
        rows: of evidence, in an order that does not depend on their arrival.
        task_id: of the task.
        source_sha256: of the one kernel that is asked for; None: all.
    """
    alike: dict[tuple[object, ...], list[Evidence]] = {}
    for row in rows:
        if row.task_id == task_id and source_sha256 in (None, row.parent_sha256):
            key = (
                row.parent_sha256, row.technique, str(sorted(row.parameters.items())), row.launch,
                row.outcome, row.child_sha256, row.gpu, row.device_kind,
            )  # fmt: skip
            alike.setdefault(key, []).append(row)
    return [_joined(each) for each in alike.values()]


def renamed(source: str, before: TaskVariant, now: TaskVariant) -> str:
    """Return a source written for one task with the names that another's task.cuh has.

    Tensors, dimensions and scalars stand for each other by their order; where there are not as many
    of them, they keep their names. Sizes are constants of task.cuh: it is built at the new ones.
    """
    words: dict[str, str] = {}
    if len(before.tensors) == len(now.tensors):
        for old, new in zip(before.tensors, now.tensors, strict=True):
            for what in ("NUMEL", "RANK", *(f"SIZE_{axis}" for axis in range(len(old.shape)))):
                words[f"{old.name.upper()}_{what}"] = f"{new.name.upper()}_{what}"
    names, others = constants_of(before), constants_of(now)
    pairs = (names.dimensions, others.dimensions), (names.scalars, others.scalars)
    for own, their in pairs:
        if len(own) == len(their):
            words |= dict(zip(own.values(), their.values(), strict=True))
    words = {old: new for old, new in words.items() if old != new}
    if not words:
        return source
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: words.get(found[0], found[0]), source)


def _by_place(kernels: Iterable[KnownKernel]) -> dict[tuple[str, str, str], list[KnownKernel]]:
    """Return the sources that won at each place, the fastest first.

    A source that won several times counts with the middle of its times: the least is luck.
    """
    told: dict[tuple[str, str, str], dict[str, list[KnownKernel]]] = {}
    for kernel in kernels:
        told.setdefault(kernel.place, {}).setdefault(kernel.source_sha256, []).append(kernel)
    found: dict[tuple[str, str, str], list[KnownKernel]] = {}
    for place, sources in told.items():
        ranked = [(_middle(each), each[0].source_sha256, _newest(each))
                  for each in sources.values()]  # fmt: skip
        found[place] = [kernel for *_, kernel in sorted(ranked, key=lambda each: each[:2])]
    return found


def _middle(kernels: list[KnownKernel]) -> float:
    return statistics.median(each.microseconds for each in kernels)


def _newest(kernels: list[KnownKernel]) -> KnownKernel:
    return max(kernels, key=lambda each: (each.created, each.id))


def _nearness(task: TaskSeen, seen: TaskSeen) -> Nearness | None:
    if task.task_id == seen.task_id:
        return "same"
    if task.dtype != seen.dtype:
        return None
    if task.operator_graph and task.operator_graph == seen.operator_graph:
        return "same" if task.shapes == seen.shapes else "resized"
    return "related" if _shared(task, seen) >= ALIKE else None


def _apart(task: TaskSeen, seen: TaskSeen) -> float:
    """Return how far the sizes of two tasks of one graph lie apart, in doublings."""
    sizes = [[size for each in tensors for size in each.shape]
             for tensors in (task.full.tensors, seen.full.tensors)]  # fmt: skip
    if len(sizes[0]) != len(sizes[1]):
        return math.inf
    return math.fsum(
        abs(math.log2(max(1, one) / max(1, other))) for one, other in zip(*sizes, strict=True)
    )


def _shared(task: TaskSeen, seen: TaskSeen) -> float:
    """Return the share of operators that two tasks have in common."""
    one, other = Counter(task.operators), Counter(seen.operators)
    union = (one | other).total()
    return (one & other).total() / union if union else 0.0


def _joined(rows: list[Evidence]) -> Tried:
    first = rows[0]
    gains = [row.log_gain for row in rows if row.log_gain is not None]
    return Tried(
        technique=first.technique,
        parameters=first.parameters,
        launch=first.launch,
        outcome=first.outcome,
        log_gain=statistics.median(gains) if gains else None,
        tries=len(rows),
        parent_sha256=first.parent_sha256,
        child_sha256=first.child_sha256,
        gpu=first.gpu,
        device_kind=first.device_kind,
        authors=tuple(sorted({row.author for row in rows})),
    )
