"""The flat form of a kernel that the C core executes: enumerations and record layouts.

`c_header()` writes the enumerations as C, so that Python and C cannot disagree.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Op(IntEnum):
    """What the interpreter does; one PTX opcode may become any of several."""

    NOP = 0
    # control
    BRANCH = 1
    EXIT = 2
    CALL = 3
    RETURN = 4
    BARRIER = 5
    BARRIER_REDUCE = 6
    TRAP = 7
    ASSERT = 8
    FENCE = 9
    BRANCH_TABLE = 16
    WARP_BARRIER = 17
    BARRIER_ARRIVE = 18
    PAUSE = 19
    """nanosleep: others should run meanwhile."""
    # moves
    MOVE = 10
    MOVE_PREDICATE = 11
    PACK = 12
    UNPACK = 13
    SELECT = 14
    CLOCK = 15
    # arithmetic
    ADD = 20
    SUB = 21
    MUL = 22
    MUL_HIGH = 23
    MUL_WIDE = 24
    MAD = 25
    MAD_HIGH = 26
    MAD_WIDE = 27
    FMA = 28
    ROUNDED = 29
    """f32 add, sub, mul or fma with directed rounding or saturation."""
    DIV = 30
    REM = 31
    MIN = 32
    MAX = 33
    NEG = 34
    ABS = 35
    SATURATE = 36
    COPYSIGN = 37
    EX2 = 38
    LG2 = 39
    SIN = 40
    COS = 41
    TANH = 42
    SQRT = 43
    RSQRT = 44
    RCP = 45
    CONVERT = 46
    CONVERT_PACK = 47
    DP4A = 48
    CONVERT_FP8 = 49
    # bits and predicates
    AND = 50
    OR = 51
    XOR = 52
    NOT = 53
    SHL = 54
    SHR = 55
    POPC = 56
    CLZ = 57
    BREV = 58
    BFE = 59
    BFI = 60
    PRMT = 61
    LOP3 = 62
    FUNNEL = 63
    COMPARE = 64
    COMPARE_SET = 65
    PREDICATE_AND = 66
    PREDICATE_OR = 67
    PREDICATE_XOR = 68
    PREDICATE_NOT = 69
    BFIND = 70
    # memory
    LOAD = 80
    STORE = 81
    ATOMIC = 82
    ASYNC_COPY = 83
    ASYNC_COMMIT = 84
    ASYNC_WAIT = 85
    # across the warp
    VOTE = 90
    ACTIVE_MASK = 91
    SHUFFLE = 92
    REDUX = 93
    MATCH_ANY = 94
    MATCH_ALL = 95
    ELECT = 96
    # matrices
    LOAD_MATRIX = 100
    MMA = 101
    WMMA_LOAD = 102
    WMMA_STORE = 103
    WMMA_MMA = 104
    STORE_MATRIX = 105
    MOVE_MATRIX = 106
    MMA_INTEGER = 107
    MMA_DOUBLE = 108
    # barriers that are objects in shared memory
    MBARRIER = 110
    COPY_ARRIVE = 111
    # calls with a frame for each activation: recursion, function pointers
    CALL_FRAME = 112
    RETURN_FRAME = 113
    FRAME_ADDRESS = 114
    # arithmetic of few kernels
    CARRY = 120
    ROUNDED_ANY = 121
    """Directed rounding of any float operation, and saturation of halves."""
    PACKED = 122
    SAD = 123
    DP2A = 124
    BIT_MASK = 125
    EXTEND_SIZE = 126
    SELECT_SIGN = 127
    CNOT = 128
    ADD_SATURATED = 129
    TEST_PROPERTY = 130
    EXTREME_XOR_SIGN = 131
    PACK_SATURATED = 132
    NTH_SET_BIT = 133
    IN_WINDOW = 134


class Type(IntEnum):
    """Value types; untyped bits (.b32) are unsigned."""

    U8 = 0
    S8 = 1
    U16 = 2
    S16 = 3
    U32 = 4
    S32 = 5
    U64 = 6
    S64 = 7
    F16 = 8
    BF16 = 9
    F32 = 10
    F64 = 11
    F16X2 = 12
    BF16X2 = 13
    TF32 = 14
    PREDICATE = 15


class Space(IntEnum):
    """State spaces. Parameters of device functions live in local memory, see decoder.py."""

    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    PARAMETER = 3
    GENERIC = 4


class Rounding(IntEnum):
    """Rounding modes; `DEFAULT` is to nearest for results, towards zero for float to integer."""

    DEFAULT = 0
    NEAREST = 1
    ZERO = 2
    DOWN = 3
    UP = 4
    AWAY = 5
    """To nearest, ties away from zero."""


class Flag(IntEnum):
    """Bits of a row's `flags` that more than one operation shares."""

    ROUNDING_MASK = 7
    SATURATE = 8
    INTEGER_ROUNDING = 16
    """The result of a float conversion is rounded to an integer (cvt.rni.f32.f32)."""
    RELU = 32
    STRONG = 64
    """Volatile, relaxed, acquire or release: ordered by the program, so never a data race."""
    RELEASE = 128
    PROPAGATE_NAN = 256
    GUESS = 16384
    """A plain load of what a compare-and-swap of the kernel then checks: no race with atomics."""
    VOLATILE = 8192
    """Beside STRONG: orders nothing, though warp-synchronous code believes so."""
    UNCOUNTED = 512
    """Passing of function arguments: no memory request of the real machine."""
    FRAME = 1024
    """The address counts from the lane's current frame (Op.CALL_FRAME)."""
    COPY = 32768
    """A load whose values are only stored again: structures are copied with their padding."""
    FLUSH = 1 << 16
    """.ftz: subnormal operands and results of arithmetic count as zeros."""
    BYPASS = 1 << 17
    """A load or asynchronous copy that goes past the L1."""
    SLOW_PATH = 1 << 18
    """A division, root or reciprocal to the last bit: odd operands take a called function."""
    NARROW = 1 << 19
    """A fence, or beside STRONG and for atomics an access, whose scope is the block or the cluster:
    for other blocks it orders nothing."""
    APPROXIMATE = 1 << 20
    """A function of single precision that the special function unit computes (approximations.c)."""
    ELECTED = 1 << 21
    """An atomic for which the machine code elects one of a warp's lanes, all at one address."""


class Rounded(IntEnum):
    """What Op.ROUNDED and Op.ROUNDED_ANY compute, from bit 8 of their flags."""

    ADD = 0
    SUB = 1
    MUL = 2
    FMA = 3
    DIV = 4
    SQRT = 5
    RCP = 6


class Carry(IntEnum):
    """Flags of Op.CARRY."""

    IN = 1
    OUT = 2
    SUBTRACT = 4
    PRODUCT = 8
    HIGH = 16


class Packed(IntEnum):
    """What Op.PACKED computes, from bit 8 of its flags, and its other flags."""

    ADD = 0
    SUB = 1
    MIN = 2
    MAX = 3
    DIFFERENCE = 4
    AVERAGE = 5
    LEFT_SIGNED = 1
    RIGHT_SIGNED = 2
    RESULT_SIGNED = 4
    SATURATE = 8
    ACCUMULATE = 16


class Property(IntEnum):
    """What testp asks."""

    FINITE = 0
    INFINITE = 1
    NUMBER = 2
    NOTANUMBER = 3
    NORMAL = 4
    SUBNORMAL = 5


class Mbarrier(IntEnum):
    """Operations on a barrier object, in `flags` of Op.MBARRIER."""

    INIT = 0
    INVALIDATE = 1
    ARRIVE = 2
    ARRIVE_DROP = 3
    EXPECT = 4
    """Bytes of asynchronous copies to come are added to the phase."""
    COMPLETE = 5
    TEST = 6
    """By the state that an arrival returned."""
    TEST_PARITY = 7
    PENDING_COUNT = 8


class Compare(IntEnum):
    """Comparisons; the unordered ones are true when an operand is NaN."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    NUM = 6
    NAN = 7
    UNORDERED = 16
    """Bit set beside one of the above."""
    COMBINE_AND = 256
    COMBINE_OR = 512
    COMBINE_XOR = 768
    NEGATE_COMBINED = 4096


class Atomic(IntEnum):
    """Read-modify-write operations, also used by redux."""

    ADD = 0
    MIN = 1
    MAX = 2
    AND = 3
    OR = 4
    XOR = 5
    EXCH = 6
    CAS = 7
    INC = 8
    DEC = 9


class Vote(IntEnum):
    """Modes of vote.sync and of barrier.red."""

    BALLOT = 0
    ANY = 1
    ALL = 2
    UNI = 3
    POPC = 4


class Shuffle(IntEnum):
    """Modes of shfl.sync."""

    UP = 0
    DOWN = 1
    BFLY = 2
    IDX = 3


class Kind(IntEnum):
    """Kinds of report, in the order of core.ReportKind."""

    OUT_OF_BOUNDS = 0
    MISALIGNED = 1
    RACE = 2
    RACE_BENIGN = 3
    UNINITIALIZED_READ = 4
    BARRIER_DIVERGENCE = 5
    TRAP = 6
    ASSERT = 7
    SHUFFLE_INACTIVE = 8
    TIMED_OUT = 9
    BARRIER_EXITED = 10


class Detail(IntEnum):
    """What else a report knows; core.py puts it in words."""

    NONE = 0
    READ = 1
    WRITE = 2
    READ_AFTER_WRITE = 3
    WRITE_AFTER_WRITE = 4
    WRITE_AFTER_READ = 5
    SAME_INSTRUCTION = 6
    OTHER_BARRIER = 7
    PARTIAL_WARP = 8
    SPINNING = 9
    NEVER_RELEASED = 10
    STACK = 11
    BAD_CALL = 12
    BARRIER_OBJECT = 13
    LANES_MISSING = 14
    COPY_PENDING = 15


class Status(IntEnum):
    """What the core returns."""

    FINISHED = 0
    STOPPED = 1
    """Trap or assertion: the rest of the launch did not run."""
    TIMED_OUT = 2
    UNKNOWN_INSTRUCTION = 3
    OUT_OF_MEMORY = 4


SHARED_WINDOW = 1 << 24
"""Generic addresses from here to LOCAL_WINDOW are shared memory."""
LOCAL_WINDOW = 1 << 32
PARAMETER_WINDOW = LOCAL_WINDOW + (1 << 30)
WINDOW_END = PARAMETER_WINDOW + (1 << 30)
"""Device memory lies above."""

SPECIAL_REGISTERS: tuple[str, ...] = (
    "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z",
    "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
    "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le",
    "%lanemask_gt", "%lanemask_ge", "%smid", "%nsmid", "%envreg1", "%envreg2",
    "%gridid",
)  # fmt: skip
"""Special registers set when a block starts, in the order of grid.c; the last has eight bytes."""

ROW_FIELDS: tuple[str, ...] = (
    "opcode", "type", "source_type", "flags", "guard", "guard_negated", "destination",
    "destination2", "source0", "source1", "source2", "source3", "destination_width",
    "source_width", "count", "space", "operands", "target",
)  # fmt: skip
"""32-bit fields of a row. Registers are byte offsets into the warp's register file, -1 for none."""

ROW = np.dtype([*((name, "<i4") for name in ROW_FIELDS), ("immediate", "<i8")])

COUNTER_FIELDS: tuple[str, ...] = (
    "warps", "active_threads", "threads", "divergent", "global_requests", "sectors", "lines",
    "bytes", "local_requests", "local_sectors", "shared_requests", "shared_wavefronts",
    "shared_wavefronts_ideal", "shared_wavefronts_64", "shared_wavefronts_128", "atomic_lanes",
    "atomic_turns", "atomic_passes", "copy_sectors", "copy_fetched", "copy_wavefronts",
    "slow_paths", "constant_words", "looks", "looks_at_written",
)  # fmt: skip
"""copy_*: of asynchronous copies past the L1, by where the bytes go (memory.c); slow_paths:
executions in which a lane takes one (Flag.SLOW_PATH); constant_words: words of constant memory, or
of the kernel's parameters, at which the lanes of reads by a register begin; looks: where blocks go
by their clocks, looks at what others may write, and those at what the launch has written."""
COUNTER = np.dtype([(name, "<i8") for name in COUNTER_FIELDS])

REPORT_FIELDS: tuple[str, ...] = (
    "count", "address", "kind", "instruction", "block", "thread", "space", "detail",
    "other_block", "other_warp", "other_thread", "other_instruction",
)  # fmt: skip
REPORT = np.dtype([(name, "<i8") for name in REPORT_FIELDS])

USE_FIELDS: tuple[str, ...] = (
    "read_sectors", "written_sectors", "block_read_sectors", "block_written_sectors",
    "read_first", "read_last", "written_first", "written_last",
    "loads", "looked", "atomic_first", "atomic_last", "read_bytes",
)  # fmt: skip
USE = np.dtype([(name, "<i8") for name in USE_FIELDS])

FUNCTION_FIELDS: tuple[str, ...] = (
    "entry", "frame_bytes", "registers", "register_count", "parameters", "parameter_count",
    "results", "result_count", "address",
)  # fmt: skip
"""Of Op.CALL_FRAME: lists lie among the operands, (offset, width) or (offset, size) pairs."""
FUNCTION = np.dtype([(name, "<i4") for name in FUNCTION_FIELDS])

_ENUMERATIONS: tuple[type[IntEnum], ...] = (
    Op, Type, Space, Rounding, Flag, Rounded, Carry, Packed, Property, Mbarrier, Compare, Atomic,
    Vote, Shuffle, Kind, Detail, Status,
)  # fmt: skip


def c_header() -> str:
    """Return the enumerations and record layouts as a C header, `encoding.h`."""
    lines = ["#ifndef SIMT_ENCODING_H", "#define SIMT_ENCODING_H", "#include <stdint.h>"]
    for enumeration in _ENUMERATIONS:
        prefix = enumeration.__name__.upper()
        members = ", ".join(
            f"{prefix}_{name} = {item.value}" for name, item in enumeration.__members__.items()
        )
        lines.append(f"enum {{ {members} }};")
    for name, value in (
        ("SHARED_WINDOW", SHARED_WINDOW),
        ("LOCAL_WINDOW", LOCAL_WINDOW),
        ("PARAMETER_WINDOW", PARAMETER_WINDOW),
        ("WINDOW_END", WINDOW_END),
        ("SPECIAL_REGISTER_COUNT", len(SPECIAL_REGISTERS)),
    ):
        lines.append(f"#define {name} UINT64_C({value})")
    rows = ", ".join(ROW_FIELDS)
    lines.append(f"typedef struct {{ int32_t {rows}; int64_t immediate; }} Instruction;")
    lines.append(f"typedef struct {{ int32_t {', '.join(FUNCTION_FIELDS)}; }} FunctionRow;")
    lines.append(f"typedef struct {{ int64_t {', '.join(COUNTER_FIELDS)}; }} Counter;")
    lines.append(f"typedef struct {{ int64_t {', '.join(REPORT_FIELDS)}; }} Report;")
    lines.append(f"typedef struct {{ int64_t {', '.join(USE_FIELDS)}; }} AllocationUse;")
    lines.append("#endif")
    return "\n".join(lines) + "\n"
