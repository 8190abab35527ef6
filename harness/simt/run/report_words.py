"""What the core reports, in words: which buffer, which other thread, at which lines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..decode.encoding import Detail, Space
from ..decode.places import Buffer, how_far, place
from ..ptx.records import Instruction
from .records import Launch, Report, ReportKind

_KINDS = tuple(ReportKind)
_SPACES = {Space.GLOBAL: "global", Space.SHARED: "shared", Space.LOCAL: "local",
           Space.PARAMETER: "parameter"}  # fmt: skip


class ReportWords:
    """Puts the rows that the core leaves of one launch in words.

    Args:
        launch: what was run.
        starts, ends: of the allocations, absolute, ascending.
    """

    def __init__(
        self, launch: Launch, starts: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64]
    ) -> None:
        self.launch, self.program = launch, launch.program
        self.starts, self.ends = starts, ends

    def report(self, row: np.void) -> Report:
        """Return a row of the core as a record."""
        instruction = self.launch.module.instructions[int(row["instruction"])]
        return Report(
            kind=_KINDS[int(row["kind"])],
            kernel=self.launch.kernel,
            instruction=instruction.text,
            line=instruction.inner_line or instruction.line,
            called_from=_call_site(instruction),
            ptx_line=instruction.ptx_line,
            block=int(row["block"]),
            thread=int(row["thread"]),
            address=int(row["address"]),
            space=_SPACES.get(Space(int(row["space"])), "") if row["space"] >= 0 else "",
            buffer=self._buffer(row),
            count=int(row["count"]),
            detail=self._detail(row),
            other_line=self._other_line(row),
            other_block=int(row["other_block"]),
            other_thread=int(row["other_thread"]),
        )

    def _buffer(self, row: np.void) -> str:
        address, program = int(row["address"]), self.program
        if row["space"] == Space.SHARED:
            named = program.shared_variables or (Buffer("the block", 0, program.shared_bytes),)
            return place(address, named, "of shared memory")
        if row["space"] in (Space.LOCAL, Space.PARAMETER):
            local = row["space"] == Space.LOCAL
            size = program.local_bytes if local else program.parameter_bytes
            whole = Buffer("the thread's local variables" if local else "the arguments", 0, size)
            return place(address, [whole])
        return ""

    def _other_line(self, row: np.void) -> int | None:
        if row["other_instruction"] < 0:
            return None
        other = self.launch.module.instructions[int(row["other_instruction"])]
        return other.inner_line or other.line

    def _detail(self, row: np.void) -> str:
        """Put in words what a report knows beside its kind."""
        kind, detail = _KINDS[int(row["kind"])], Detail(int(row["detail"]))
        block, warp = int(row["other_block"]), int(row["other_warp"])
        thread, elsewhere = int(row["other_thread"]), block != int(row["block"])
        if block < 0:
            other = "other blocks"
        elif elsewhere:
            other = f"block {block}" + (f" thread {thread}" if thread >= 0 else "")
        elif thread >= 0:
            other = f"thread {thread} (warp {warp})"
        else:
            other = f"warp {warp}" if warp >= 0 else "other warps"
        line = self._other_line(row)
        at = f" at line {line}" if line else ""
        within = not elsewhere and warp == int(row["thread"]) // 32
        between = "with no __syncwarp() between" if within else "with no barrier between"
        if elsewhere:
            between = "and blocks run in any order"
        words = {
            Detail.READ: "read",
            Detail.WRITE: "write",
            Detail.READ_AFTER_WRITE: f"reads what {other} wrote{at}, {between}",
            Detail.WRITE_AFTER_WRITE: f"overwrites what {other} wrote{at}, {between}",
            Detail.WRITE_AFTER_READ: f"overwrites what {other} read{at}, {between}",
            Detail.SAME_INSTRUCTION: "lanes of one store write different values to one address",
            Detail.OTHER_BARRIER: "threads of one block wait at different barriers"
            + (f", others at line {line}" if line else ""),
            Detail.PARTIAL_WARP: "a warp-wide instruction is executed without all its lanes",
            Detail.SPINNING: "spins on a value that never changes: the instruction budget is spent",
            Detail.NEVER_RELEASED: f"deadlock: barrier {int(row['address'])} waits for threads "
            "that never arrive",
            Detail.STACK: "the call stack overflows (endless recursion?)",
            Detail.BAD_CALL: "a call through a pointer to no function, or with other arguments",
            Detail.BARRIER_OBJECT: "more arrivals than the barrier was made for",
            Detail.LANES_MISSING: f"waits for {_lanes(int(row['address']))}, which its mask names "
            "and which never come: they wait elsewhere",
            Detail.COPY_PENDING: f"touches what an asynchronous copy of {other}{at} may not have "
            "brought yet: it was not waited for",
        }.get(detail, "")
        if kind is ReportKind.OUT_OF_BOUNDS and row["space"] == Space.GLOBAL:
            return f"{words}, {self._nearest(int(row['address']))}"
        if kind is ReportKind.SHUFFLE_INACTIVE and detail is Detail.NONE:
            return f"takes a value from lane {int(row['address'])}, which does not take part"
        if kind is ReportKind.BARRIER_EXITED:
            return "had left the kernel when the others met at this barrier"
        if kind is ReportKind.TIMED_OUT and detail is Detail.NONE:
            return "the instruction budget is spent"
        return words

    def _nearest(self, address: int) -> str:
        place = int(np.searchsorted(self.starts, np.uint64(address), side="right")) - 1
        if place < 0:
            return "before every allocation"
        start, end = int(self.starts[place]), int(self.ends[place])
        if address >= end:
            far = how_far(address - end)
            return f"{far} past the end of an allocation of {end - start} bytes"
        return f"across the end of an allocation of {end - start} bytes"


def _call_site(instruction: Instruction) -> int | None:
    """Return the outermost call's line where an instruction was inlined from another."""
    inner, outer = instruction.inner_line, instruction.line
    return outer if inner and inner != outer else None


def _lanes(mask: int) -> str:
    """Return a mask of lanes in words: `lanes 3-7, 9`."""
    parts: list[str] = []
    lane = 0
    while lane < 32:
        last = lane
        while last < 32 and mask >> last & 1:
            last += 1
        if last > lane:
            parts.append(str(lane) if last == lane + 1 else f"{lane}-{last - 1}")
        lane = last + 1
    return f"{'lane' if mask.bit_count() == 1 else 'lanes'} {', '.join(parts)}"
