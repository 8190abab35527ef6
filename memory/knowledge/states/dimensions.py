"""The dimensions of a signature: what each says, how much it counts, how it is measured.

A state's centroid names the dimensions that define it. Of `EARLIER`, the first layout, those that
it does not name stand at `neutral`, the value of an unremarkable kernel, so that a kernel with a
striking feature goes to the state that names that feature; later ones are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from ....harness.records.profiles import Bottleneck
from . import measures
from .measures import Measure

UNKNOWN = -1.0
"""Value of a dimension that nobody measured."""
BOTTLENECKS: tuple[str, ...] = get_args(Bottleneck)


@dataclass(frozen=True)
class Dimension:
    """One number of a signature."""

    name: str
    words: str
    """What a value says, with `{}` for it in percent."""
    neutral: float
    """Value of an unremarkable kernel."""
    weight: float
    """How much a difference counts in a distance; 1 is usual, 2 to 4 mark a symptom."""
    measure: Measure
    """From the program and one of its launches, None where that is not known; clamped to [0, 1]
    afterwards."""

    def changed(self, before: float, after: float) -> str:
        """Return what a value was and is now, in words; one figure where both read alike."""
        left, right = f"{before:.0%}", f"{after:.0%}"
        return self.words.format(left if left == right else f"{left} -> {right}")


_EARLIER: tuple[Dimension, ...] = (
    Dimension(
        "sm", "SM throughput is {} of peak", 0.4, 1,
        measures.percent(f"sm__throughput.{measures.ELAPSED}"),
    ),
    Dimension("dram", "DRAM throughput is {} of peak", 0.4, 1, measures.dram),
    Dimension(
        "l2", "L2 throughput is {} of peak", 0.4, 1,
        measures.percent(f"lts__throughput.{measures.ELAPSED}"),
    ),
    Dimension(
        "l1", "L1 throughput is {} of peak", 0.4, 1,
        measures.percent(f"l1tex__throughput.{measures.ELAPSED}"),
    ),
    Dimension(
        "l1_hit", "{} of the L1 sectors hit", 0.3, 0.5,
        measures.percent("l1tex__t_sector_hit_rate.pct"),
    ),
    Dimension(
        "l2_hit", "{} of the L2 sectors hit", 0.5, 0.5,
        measures.percent("lts__t_sector_hit_rate.pct"),
    ),
    Dimension(
        "occupancy_limit", "occupancy can reach {}", 0.9, 0.5,
        measures.percent("sm__maximum_warps_per_active_cycle_pct"),
    ),
    Dimension(
        "occupancy", "occupancy reaches {}", 0.7, 1,
        measures.percent(
            "sm__warps_active.avg.pct_of_peak_sustained_active",
            "sm__maximum_warps_per_active_cycle_pct",
        ),
    ),
    Dimension(
        "limit_registers", "registers limit occupancy", 0.0, 0.5, measures.limiter("registers")
    ),
    Dimension(
        "limit_shared", "shared memory limits occupancy", 0.0, 0.5, measures.limiter("shared_mem")
    ),
    Dimension(
        "limit_blocks", "the block slots limit occupancy", 0.0, 1, measures.limiter("blocks")
    ),
    Dimension(
        "load_sectors", "a load request touches {} of 32 sectors", 0.15, 1,
        measures.sectors_per_request("ld"),
    ),
    Dimension(
        "store_sectors", "a store request touches {} of 32 sectors", 0.15, 1,
        measures.sectors_per_request("st"),
    ),
    Dimension("uncoalesced", "{} of the sectors are wasted", 0.0, 3, measures.uncoalesced),
    Dimension(
        "bank_conflicts", "{} of the shared wavefronts are conflicts", 0.0, 3,
        measures.bank_conflicts,
    ),
    Dimension(
        "shared_share", "{} of the accesses go to shared memory", 0.2, 1, measures.shared_share
    ),
    Dimension("fma", "the FMA pipe is {} busy", 0.2, 1, measures.pipe("fma")),
    Dimension("alu", "the ALU pipe is {} busy", 0.2, 1, measures.pipe("alu")),
    Dimension("xu", "the special-function pipe is {} busy", 0.05, 2, measures.pipe("xu")),
    Dimension("lsu", "the load/store pipe is {} busy", 0.2, 1, measures.pipe("lsu")),
    Dimension("fp64", "the FP64 pipe is {} busy", 0.0, 2, measures.pipe("fp64")),
    Dimension("fp16", "the FP16 pipe is {} busy", 0.0, 1, measures.pipe("fp16", "fma_type_fp16")),
    Dimension(
        "tensor", "the tensor pipe is {} busy", 0.0, 1,
        measures.pipe("tensor", "tensor_op_hmma", "tensor_op_gmma"),
    ),
    Dimension("idle_lanes", "{} of the lanes idle", 0.02, 2, measures.idle_lanes),
    Dimension(
        "unfilled", "the blocks it could hold at once are lacking by {}", 0.0, 1.5,
        measures.unfilled,
    ),
    Dimension(
        "many_waves", "the grid makes many waves (log scale {})", 0.3, 0.5, measures.many_waves
    ),
    Dimension("spills", "{} of the memory traffic is spills", 0.0, 4, measures.spills),
    Dimension("atomics", "{} of the global traffic is atomics", 0.0, 3, measures.atomics),
    Dimension(
        "compute_balance", "arithmetic against DRAM stands at {} (ridge 50 %)", 0.4, 1,
        measures.compute_balance,
    ),
    Dimension("duration", "it runs long (log scale {})", 0.4, 0.25, measures.duration),
    Dimension("more_launches", "several launches (1 - 1/n is {})", 0.0, 2, measures.more_launches),
    Dimension(
        "other_launches", "{} of the time is in other kernels", 0.0, 2, measures.other_launches
    ),
    *(
        Dimension(
            f"bound_{name}", f"{name} is the bottleneck", 0.0, 0.2, measures.is_bottleneck(name)
        )
        for name in BOTTLENECKS
    ),
)  # fmt: skip

_LATER: tuple[Dimension, ...] = (
    Dimension(
        "stall_memory", "warps wait for device memory {} of their waiting", 0.4, 1,
        measures.stall("long_scoreboard"),
    ),
    Dimension(
        "stall_queue", "warps wait for the load/store queues {} of their waiting", 0.05, 1,
        measures.stall("lg_throttle", "mio_throttle", "tex_throttle"),
    ),
    Dimension(
        "stall_shared", "warps wait for shared memory {} of their waiting", 0.1, 1,
        measures.stall("short_scoreboard"),
    ),
    Dimension(
        "stall_barrier", "warps wait at barriers {} of their waiting", 0.05, 1,
        measures.stall("barrier"),
    ),
    Dimension(
        "stall_pipe", "warps wait for a busy pipe {} of their waiting", 0.1, 1,
        measures.stall("math_pipe_throttle"),
    ),
    Dimension(
        "stall_chain", "warps wait for their own last result {} of their waiting", 0.2, 1,
        measures.stall("wait"),
    ),
    Dimension(
        "stall_fetch", "warps wait for instructions {} of their waiting", 0.05, 1,
        measures.stall("no_instruction", "branch_resolving", "imc_miss"),
    ),
    Dimension(
        "register_share", "a thread has {} of the registers it can have", 0.15, 0.5,
        measures.registers,
    ),
    Dimension(
        "shared_room", "a block has {} of an SM's shared memory", 0.0, 0.5, measures.shared_bytes
    ),
    Dimension("block_threads", "blocks of many threads (log scale {})", 0.8, 0.5, measures.threads),
    Dimension("tail", "the last wave leaves {} of the room empty", 0.1, 0.5, measures.tail),
    Dimension("written", "{} of the DRAM traffic is writes", 0.4, 0.25, measures.written),
    Dimension(
        "thread_bytes", "a thread moves many DRAM bytes (log scale {})", 0.2, 0.5,
        measures.thread_bytes,
    ),
    Dimension(
        "asked_again", "bytes of DRAM are asked for again and again (log scale {})", 0.2, 0.5,
        measures.asked_again,
    ),
    Dimension(
        "at_bound", "it is near the task's bound ({} of the way there from 60 % of it)", 0.0, 3,
        lambda profile, launch: 0.0,
    ),
)  # fmt: skip

_NEWEST: tuple[Dimension, ...] = (
    Dimension("idle_sms", "{} of the SMs have no block", 0.0, 2, measures.idle_sms),
)

DIMENSIONS = (*_EARLIER, *_LATER, *_NEWEST)
EARLIER = len(_EARLIER)
"""Dimensions of the first layout: they are the first of today's."""
SECOND = EARLIER + len(_LATER)
"""Dimensions of the second layout, which begin today's too."""
AT_BOUND = SECOND - 1
"""Place of the dimension that the task's bound decides: what is not known to be near it is not."""

WEIGHTS = np.array([dimension.weight for dimension in DIMENSIONS])
"""Of each dimension in a distance."""
NEUTRAL = np.array([dimension.neutral for dimension in DIMENSIONS])
"""Of each dimension, its value for an unremarkable kernel."""
LATER_UNKNOWN = (
    *(dimension.neutral for dimension in _EARLIER), *[UNKNOWN] * (len(_LATER) - 1), 0.0,
    *[UNKNOWN] * len(_NEWEST),
)  # fmt: skip
"""An unremarkable kernel of which nothing more is known than `EARLIER` has."""
