"""Builds and loads the C core, and mirrors the record it is called with."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from ...build.native import build_native
from ...errors import UserError
from ..decode.encoding import SPECIAL_REGISTERS, c_header

_FLAGS = (
    "-std=gnu11",
    "-ftree-vectorize",
    "-ffp-contract=off",  # a * b + c in PTX is two instructions and two roundings
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",  # a register is read as whatever type the instruction says
)
SECTOR_USE_BYTES = 28
GLOBAL_SHADOW_BYTES = 48

_POINTERS = (
    "code", "operands", "constants", "parameters", "allocation_starts", "allocation_ends",
    "blocks", "counters", "reports", "uses", "sectors", "initialised", "shadow",
    "path", "critical", "critical_last", "trace", "traced", "functions", "before",
    "work", "asked", "ways", "stored", "followed",
)  # fmt: skip
_LONGS = (
    "trace_length", "trace_capacity", "arena_base", "arena_size", "first_block", "block_count",
    "instruction_budget", "path_length", "path_capacity", "before_length", "before_capacity",
    "slice", "turn", "ended_blocks", "ended_work", "hop_clocks", "atomic_hop_clocks", "horizon",
    "path_clocks", "path_waits", "own_clocks", "last_clocks", "ended", "news_clocks",
    "block_limit",
)  # fmt: skip
_INTS = (
    "entry", "register_bytes", "constant_offset", "constant_bytes", "parameter_bytes",
    "shared_bytes", "local_bytes", "allocation_count", "report_count", "report_capacity",
    "checks", "tracing", "failed_instruction", "resident_limit", "partial_barriers", "stacked",
    "function_count", "instruction_count", "following", "drawn", "way_scale", "followed_count",
    "keeping",
)  # fmt: skip


class Machine(ctypes.Structure):
    """The C record of the same name (core/simt.h), field for field."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in _POINTERS],
        *[(name, ctypes.c_int64) for name in _LONGS[:2]],
        *[(name, ctypes.c_uint64) for name in _LONGS[2:4]],
        *[(name, ctypes.c_int64) for name in _LONGS[4:]],
        ("watched", ctypes.c_uint64),
        ("news", ctypes.c_uint64),
        ("changes", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("grid_workspace", ctypes.c_uint64),
        ("chance", ctypes.c_uint64),
        *[(name, ctypes.c_int32) for name in _INTS],
        ("hottest_sector", ctypes.c_uint32),
        ("clock", ctypes.c_uint32),
        ("constant_lines", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("special_offsets", ctypes.c_int32 * len(SPECIAL_REGISTERS)),
    ]


@functools.cache
def core_library() -> ctypes.CDLL:
    """Return the C core, compiled when this machine has not compiled it before.

    Raises:
        UserError: no host compiler works, or the library does not fit this Python code.
    """
    folder = Path(__file__).parent.parent / "core"
    path = build_native(
        "simt-core",
        sorted(folder.glob("*.c")),
        _FLAGS,
        headers={"encoding.h": c_header()},
        libraries=("m",),
    )
    library = ctypes.CDLL(str(path))
    for name in ("simt_machine_bytes", "simt_sector_use_bytes", "simt_global_shadow_bytes",
                 "simt_replay_l1", "simt_index_trace", "simt_trace_echoes"):  # fmt: skip
        getattr(library, name).restype = ctypes.c_int64
    library.simt_run.restype = ctypes.c_int
    sizes = (
        library.simt_machine_bytes(),
        library.simt_sector_use_bytes(),
        library.simt_global_shadow_bytes(),
    )
    if sizes != (ctypes.sizeof(Machine), SECTOR_USE_BYTES, GLOBAL_SHADOW_BYTES):
        raise UserError(
            f"the simulator's C core at {path} does not match the Python code; "
            "delete that file and try again"
        )
    return library
