"""What a process that ran a candidate reports: plain records that it fills and we check.

The process itself must stay light, so these are dataclasses without checks. A candidate's kernels
run beside what writes them: nothing is believed before `border.read_report` has looked at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

FORBID = {"extra": "forbid"}
"""What reading a report makes of keys that it does not know."""

Fault = tuple[str, str]
"""Kind and message of what a call of the host half was refused for."""


@dataclass
class Finding:
    """Something that was found in one place of a candidate, in the words of a Diagnostic."""

    __pydantic_config__ = FORBID

    kind: str
    message: str
    kernel: str | None = None
    line: int | None = None
    """1-based line of the candidate's source."""
    count: int = 1


@dataclass
class CaseReport:
    """What one case of a verification showed; without any finding it ran to its end."""

    __pydantic_config__ = FORBID

    name: str = ""
    faults: list[Fault] = field(default_factory=list)
    reports: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """What is no fault by itself, but may explain a wrong answer."""
    guards: list[str] = field(default_factory=list)
    """Where guard bands were damaged."""
    modified: list[str] = field(default_factory=list)
    """Names of inputs that were written to."""
    launches: int = 0
    instructions: int = 0
    """Warp instructions executed; 0 where nobody counts them."""
    checked: bool = True
    """Whether every access was watched."""

    @property
    def shows_fault(self) -> bool:
        """Whether anything was found that ends a verification."""
        return bool(self.faults or self.reports or self.guards or self.modified)


@dataclass
class VerifyReport:
    """The body of the simulated GPU's report of a verification."""

    __pydantic_config__ = FORBID

    cases: list[CaseReport]
    isolation_missing: list[str] = field(default_factory=list)
    """What of its isolation the machine does not offer to the process."""


@dataclass
class Written:
    """What a launch writes of one allocation, in sectors of which each block counts its own."""

    __pydantic_config__ = FORBID

    grid_bytes: float
    """Of the whole grid, estimated from the random blocks alone."""
    sampled_bytes: float
    """Of all blocks that ran."""
    first: int
    end: int
    """What any block wrote lies in [first, end), from the start of the allocation."""
    span: float
    """Estimated length of that range for the whole grid."""
    raised: float = 0.0
    """By how much of `grid_bytes` the estimate was raised for its own error: an honest kernel whose
    blocks differ may write so much, and nothing shows that it does."""


class LaunchReport(Protocol):
    """What the judge wants to know of a launch at full dimensions."""

    kernel: str
    atomic_lines: float
    """Distinct 128-byte lines that atomics touched."""
    written: dict[int, Written]
    """By place of the allocation."""
    read: list[int]
    """Places of the allocations that were read."""
    read_bytes: dict[int, int]
    """Of outputs and the workspace, by place: distinct bytes that blocks which ran have read, and
    not written themselves; none where they may see what others of the launch write."""
    joins_blocks: bool
    """Blocks use atomics and read memory that the launch writes: what one leaves may hang on what
    others, not in the sample, have left."""
    sampled_blocks: int
    """Blocks that were run."""
    race_checked_blocks: int
    """Neighbouring blocks that were also run with all checks."""

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every block was run."""
        ...


@dataclass
class TransferReport:
    """An asynchronous copy or fill at full dimensions: bytes moved, and where they went."""

    __pydantic_config__ = FORBID

    copy: bool
    value: int
    """Byte that a fill writes."""
    read: int
    written: int
    """Bytes, in whole sectors."""
    place: int
    """The target's place among the allocations."""
    source_place: int | None
    offset: int
    """Of the first byte in the target."""
    pitch: int
    width: int
    height: int
