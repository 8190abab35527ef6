"""What the child that ran a candidate reports of each launch: plain counts, scaled to the grid."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..judge.reports import FORBID, Fault, Finding, TransferReport, Written


@dataclass
class Counts:
    """Counters of one sample of blocks, scaled to the whole grid."""

    __pydantic_config__ = FORBID

    pipes: dict[str, float] = field(default_factory=dict)
    """Machine instructions (expected of ptxas) by pipe, per warp."""
    warp_instructions: float = 0.0
    """PTX instructions executed by a warp."""
    thread_instructions: float = 0.0
    """PTX instructions executed by a thread."""
    ffma: float = 0.0
    fadd: float = 0.0
    fmul: float = 0.0
    """fp32 operations by thread."""
    branches: float = 0.0
    tensor_operations: float = 0.0
    load_requests: float = 0.0
    load_sectors: float = 0.0
    load_lines: float = 0.0
    """128-byte lines, summed over the requests."""
    load_bytes: float = 0.0
    """Bytes that threads asked for."""
    copy_requests: float = 0.0
    """Asynchronous copies past the L1; with their sectors and lines they are among the loads."""
    copy_sectors: float = 0.0
    copy_lines: float = 0.0
    copy_fetched: float = 0.0
    """Sectors that they fetch from the L2: more where what they copy lies otherwise in sectors."""
    copy_wavefronts: float = 0.0
    """Theirs among the shared wavefronts."""
    store_requests: float = 0.0
    store_sectors: float = 0.0
    store_lines: float = 0.0
    store_bytes: float = 0.0
    atomic_requests: float = 0.0
    atomic_lanes: float = 0.0
    atomic_lines: float = 0.0
    atomic_turns: float = 0.0
    """Turns of each request on each sector: lanes on one address go one after the other."""
    atomic_passes: float = 0.0
    """The same where a sector serves no more than four lanes at a time; those whose old value is
    used count twice."""
    hottest_atomic: float = 0.0
    """Turns on the most contended sector."""
    float_atomics: float = 0.0
    """Of `atomic_turns`, those that add floating-point numbers."""
    shared_requests: float = 0.0
    shared_wavefronts: float = 0.0
    shared_wavefronts_ideal: float = 0.0
    local_sectors: float = 0.0
    local_store_sectors: float = 0.0
    """Those of stores alone."""
    barriers_per_warp: float = 0.0
    tensor_products: float = 0.0
    """Full products (16 x 8 x 16 on fp16) of the tensor instructions; 0 where only PTX is known."""
    constant_requests: float = 0.0
    """Reads of constant memory (or of parameters) at addresses that lanes hold in registers."""
    constant_words: float = 0.0
    """Distinct words that those name, which are served one after the other."""
    narrow_requests: float = 0.0
    """Global requests of 4 bytes a thread or fewer, neighbouring threads on neighbouring words."""
    lines: dict[int, list[float]] = field(default_factory=dict)
    """By source line: machine instructions, global sectors, shared wavefronts."""


Level = tuple[float, float]
"""How many blocks of a grid, and what each of them has at least, over an average block's."""


@dataclass
class LaunchCounters:
    """One launch of a candidate at full dimensions."""

    __pydantic_config__ = FORBID

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    samples: list[Counts]
    """One for each disjoint sample of blocks; none where it is like another launch."""
    sampled_blocks: int
    resident_blocks: int
    chain_clocks: float
    """Clocks of a block alone: those of its slowest warp."""
    l1_load_sectors: float
    """Load sectors that the replayed L1 saw, whole grid."""
    l1_hit_sectors: float
    l1_missed_lines: float
    """Share of the lines of all load requests that are asked for beyond the L1."""
    read_footprint: float
    """Distinct bytes read by the whole grid."""
    write_footprint: float
    reread_bytes: float
    """Bytes that the L2 must fetch again because it cannot hold them between uses."""
    dram_accesses: float = 0.0
    """Reads and writes of single places, far from those beside them, that reach DRAM."""
    filled_bytes: float = 0.0
    """Bytes that DRAM must read because stores cover sectors only in part."""
    atomic_lines: float = 0.0
    """Distinct 128-byte lines that atomics touched."""
    contended_lines: float = 0.0
    """Of these, those on which they take longest."""
    contended_share: float = 1.0
    """Of all turns that atomics take, those on these lines."""
    local_bytes: float = 0.0
    """Local memory of one thread."""
    constant_bytes: float = 0.0
    """Of constant memory, read by one SM's blocks at addresses that lanes hold in registers."""
    slowest_warp: float = 1.0
    """Clocks of a block's slowest warp, and of those it waits for, over its average warp's."""
    longest_block: float = 1.0
    """Instructions of the longest block that ran over an average one's."""
    work_levels: list[Level] = field(default_factory=list)
    """Blocks by their instructions, fewest first; empty where all are equal."""
    clock_levels: list[Level] = field(default_factory=list)
    """The same by the clocks that each takes alone; empty where these are as their work."""
    path_blocks: float = 1.0
    """Work on the longest path from block to block, over that of a block's slowest warp."""
    path_waits: float = 0.0
    """Clocks until blocks on that path see what others have done."""
    standard_error: float = 0.0
    """Relative, of the instructions: blocks differ in their work, and not all are counted."""
    written: dict[int, Written] = field(default_factory=dict)
    """By place of the allocation."""
    read: list[int] = field(default_factory=list)
    """Places of the allocations that were read."""
    read_bytes: dict[int, int] = field(default_factory=dict)
    """Of outputs and the workspace, by place: distinct bytes that blocks which ran have read, and
    not written themselves; none where they may see what others of the launch write."""
    like: int | None = None
    """Place among the kernel launches of an earlier one that was the same, whose counts it has."""
    simulated: int = 0
    """Warp instructions that were run for it."""
    repeatable: bool = False
    """Its blocks know nothing of each other: a launch like it takes the same."""
    block_work: tuple[float, ...] = ()
    """Of a repeatable one, what an average block asks for (sample/repeats.py)."""
    race_checked_blocks: int = 0
    """Neighbouring blocks that were also run with all checks, as far as a budget went."""
    joins_blocks: bool = False
    """Blocks use atomics and read memory that the launch writes: what one leaves may hang on what
    others, not in the sample, have left."""

    @property
    def complete(self) -> bool:
        """Whether every block was run."""
        return self.sampled_blocks >= self.blocks

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps in a block."""
        return -(-self.threads // 32)


@dataclass
class ProfileReport:
    """The body of the child's report of a run at full dimensions."""

    __pydantic_config__ = FORBID

    launches: list[LaunchCounters | TransferReport]
    """In order; empty where every block was run and nothing counted."""
    faults: list[Fault]
    reports: list[Finding]
    isolation_missing: list[str] = field(default_factory=list)
