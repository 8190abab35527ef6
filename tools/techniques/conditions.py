"""What is known of a kernel at hand, and what several techniques ask of it.

Where facts have a name (`memory.knowledge.states.conditions`), a technique states conditions on
them. The rest are functions, which look at the source or the profile: each returns in a few words
why a technique cannot act, None where nothing says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from ...harness.gpus import known_gpu
from ...harness.records.evaluations import DeviceIdentity
from ...harness.records.profiles import LaunchProfile, Profile
from ...harness.records.tasks import Task
from ...harness.records.timings import Provenance
from ...memory.knowledge.policy.policy import LEAST_SHARE, TARGETS
from ...memory.knowledge.states.conditions import KernelFacts, kernel_facts, operators
from ...memory.records.conditions import Condition
from ..rewriting.source.kernel_text import own_text
from .launch_work import operators_of
from .operators import PRODUCTS, ROWS, convolutions

OTHER_TASK = "not for this task on this device"
"""Why a technique cannot act that no kernel of the task could use."""
APPLIED_GAIN = 1.01
"""Gain above which a technique counts as applied to a file."""
FULL_SECTOR = 31.0
"""Bytes used of the 32 of a sector from which none are wasted."""
SECTOR = 32.0
"""Bytes."""
READ_ONCE = 1.2
"""Bytes asked for, of one that device memory moves, up to which nothing is read again."""
CONSECUTIVE = 4.5
"""Sectors of a request up to which the lanes of a warp read consecutive words, or shared ones."""
WIDE = 32
"""Columns of a product from which it is no matter of rows."""
CHANNELS = 8
"""Channels that a convolution's result sums over from which it is like a product."""
SMALL_SHARED = 1024
"""Bytes of shared memory of a block below which no tiles are staged there."""


class AtHand(NamedTuple):
    """What is known of a program, or of one of its kernels (`each`)."""

    task: Task
    source: str
    """Of the file; of one of several kernels, what belongs to it where that is known."""
    profile: Profile
    applied: frozenset[str]
    """Techniques that gained on the way to it."""
    launch: LaunchProfile | None = None
    """The one looked at; None: the longest."""
    computes: frozenset[str] | None = None
    """Operators of the task that the kernel looked at can be computing; None: all."""
    own: bool = False
    """Whether the source is of the kernel looked at alone."""

    @property
    def seen(self) -> LaunchProfile:
        """The launch looked at."""
        return self.launch or self.profile.dominant

    @property
    def alone(self) -> bool:
        """Whether what the source says is said of the launch looked at."""
        return self.own or len(self.profile.launches) == 1

    def each(self) -> tuple[AtHand, ...]:
        """Return the kernels of the program that a technique may be aimed at, the costliest
        first; of a program of one kernel, the program."""
        shares, total = self.profile.by_kernel, self.profile.microseconds
        if len(shares) == 1:
            return (self,)
        matter = [each for each in shares if each.microseconds >= LEAST_SHARE * total][:TARGETS]
        work = operators_of(self.task, self.source, [each.kernel for each in shares])
        texts = {each.kernel: own_text(self.source, each.kernel) for each in matter}
        return tuple(
            self._replace(
                source=texts[each.kernel] or self.source,
                launch=each.longest,
                computes=work[each.kernel],
                own=texts[each.kernel] is not None,
            )
            for each in matter or shares[:1]
        )

    def may_compute(self, *names: str) -> bool:
        """Say whether it can be computing one of these operators; of a task without a graph,
        yes."""
        if self.task.program is None:
            return True
        known = operators(self.task) if self.computes is None else self.computes
        return not known.isdisjoint(names)

    def metric(self, name: str) -> float | None:
        """Return a metric of the launch."""
        return self.seen.metrics.get(name)

    def facts(self) -> KernelFacts:
        """Return what is known of it under the names that conditions use."""
        simulated = self.profile.provenance is Provenance.SIMULATED
        gpu = known_gpu(self.profile.gpu)
        device = DeviceIdentity(
            kind="simulated" if simulated else "cuda",
            gpu=self.profile.gpu,
            arch=gpu.arch if gpu else "",
            toolchain="",
        )
        facts = kernel_facts(
            self.task, self.profile, device, launch=self.launch, applied=self.applied
        )
        return facts if self.computes is None else {**facts, "operators": self.computes}


Unfit = Callable[[AtHand], str | None]


# Conditions ----------------------------------------------------------------------------------

ON_A_GPU = Condition(feature="device_kind", comparison="lacks", value=("simulated",))
"""For instructions that the simulated device does not run."""
SEVERAL_LAUNCHES = Condition(feature="launches", comparison="at_least", value=2.0)


def computes(*operators: str) -> Condition:
    """Return that the task's graph holds one at least of these operators."""
    value = tuple(dict.fromkeys(operators))
    return Condition(feature="operators", comparison="among", value=value)


def equals(feature: str, value: float | str) -> Condition:
    """Return that a fact is this one."""
    return Condition(feature=feature, comparison="equals", value=value)


def among(feature: str, *words: str) -> Condition:
    """Return that a fact is one of several words."""
    return Condition(feature=feature, comparison="among", value=words)


def at_least(feature: str, value: float) -> Condition:
    """Return that a fact is a number no smaller than this."""
    return Condition(feature=feature, comparison="at_least", value=value)


def at_most(feature: str, value: float) -> Condition:
    """Return that a fact is a number no larger than this."""
    return Condition(feature=feature, comparison="at_most", value=value)


# What no fact has a name for -----------------------------------------------------------------


def already(pattern: str, words: str) -> Unfit:
    """Return a function that says these words of a source that has the pattern."""
    found = re.compile(pattern)
    return lambda at_hand: words if found.search(at_hand.source) else None


def lacking(pattern: str, words: str) -> Unfit:
    """Return a function that says these words of a source that lacks the pattern."""
    found = re.compile(pattern)
    return lambda at_hand: None if found.search(at_hand.source) else words


NO_LOOP = lacking(r"\b(for|while)\b", "it has no loop")


def first_of(*reasons: Unfit) -> Unfit:
    """Return a function that says the first of several reasons there is."""
    return lambda at_hand: next((why for each in reasons if (why := each(at_hand))), None)


def no_rows(at_hand: AtHand) -> str | None:
    """Return that no operator of the kernel goes over rows: products with few columns do."""
    program = at_hand.task.program
    if program is None or at_hand.may_compute(*ROWS):
        return None
    thin = any(
        node.shape is not None and (len(node.shape) < 2 or node.shape[-1] < WIDE)
        for node in program.nodes
        if node.op.split(".")[1:2] and node.op.split(".")[1] in PRODUCTS
    )
    return None if thin else OTHER_TASK


def few_channels(at_hand: AtHand) -> str | None:
    """Return that no convolution sums over enough channels to be a product."""
    known = convolutions(at_hand.task)
    wide = any(each.channels_in // each.groups >= CHANNELS for each in known)
    return OTHER_TASK if known and not wide else None


def read_once(at_hand: AtHand) -> str | None:
    """Return that global accesses ask for hardly more than what device memory gave: nothing is
    read again."""
    moved = [at_hand.metric(f"dram__bytes_{way}.sum") for way in ("read", "write")]
    counts = [
        at_hand.metric(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum")
        for kind in ("ld", "st")
    ]
    if not _is_one_kernel(at_hand) or None in (*moved, *counts):
        return None
    asked = SECTOR * math.fsum(count or 0.0 for count in counts)
    once = asked <= READ_ONCE * math.fsum(each or 0.0 for each in moved)
    return "what it reads is read once" if once else None


def no_waste(at_hand: AtHand) -> str | None:
    """Return that global accesses use all they fetch."""
    known = 0
    for kind in ("ld", "st"):
        operation = f"mem_global_op_{kind}.ratio"
        used = at_hand.metric(f"smsp__sass_average_data_bytes_per_sector_{operation}")
        sectors = at_hand.metric(f"l1tex__average_t_sectors_per_request_pipe_lsu_{operation}")
        consecutive = sectors is not None and 0 < sectors <= CONSECUTIVE
        if used and used < FULL_SECTOR and not consecutive:
            return None
        if not used and sectors and not consecutive:
            return None  # a measured profile does not count the bytes that were used
        known += bool(used or consecutive)
    return "no bytes of the sectors are wasted" if known and _is_one_kernel(at_hand) else None


def _is_one_kernel(at_hand: AtHand) -> bool:
    """Say whether the launch looked at is all that is spoken of."""
    return at_hand.launch is not None or len(at_hand.profile.launches) == 1


def no_conflicts(at_hand: AtHand) -> str | None:
    """Return that shared memory is read and written in as few turns as can be."""
    actual = at_hand.metric("memory_l1_wavefronts_shared")
    ideal = at_hand.metric("memory_l1_wavefronts_shared_ideal")
    if actual is None or ideal is None or not _is_one_kernel(at_hand):
        return None
    return "there are no bank conflicts" if actual <= 1.01 * ideal else None


def no_atomics(at_hand: AtHand) -> str | None:
    """Return that the file has no atomic operation."""
    return None if "atomic" in at_hand.source else "the file has no atomics"


def rows_shared(at_hand: AtHand) -> str | None:
    """Return that threads meet over rows by shuffles already."""
    meets = "__shfl" in at_hand.source and at_hand.alone
    return "threads share rows already" if meets else None


def copied_ahead(at_hand: AtHand) -> str | None:
    """Return that tiles are copied ahead already, or that there are none."""
    ahead = re.search(r"pipeline_commit|cp\.async\.(commit|bulk)|memcpy_async", at_hand.source)
    return "tiles are copied ahead already" if ahead else nothing_staged(at_hand)


def nothing_staged(at_hand: AtHand) -> str | None:
    """Return that shared memory holds no tiles."""
    static = at_hand.metric("launch__shared_mem_per_block_static") or 0.0
    shared = static + at_hand.seen.dynamic_shared_bytes
    small = shared < SMALL_SHARED and _is_one_kernel(at_hand)
    return "no tiles are staged in shared memory" if small else None
