"""The parsed form of PTX: modules, functions, variables, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_BYTES: dict[str, int] = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "u16x2": 4, "s16x2": 4,
}  # fmt: skip
"""Size of each PTX type in bytes; predicates count as one."""


class PtxError(Exception):
    """PTX text that does not follow the grammar this parser knows."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """1-based line of the candidate's source, where one is known."""


@dataclass(frozen=True)
class Register:
    """A virtual register; `key` is unique in the module, whatever scope it was declared in."""

    key: str
    type: str


@dataclass(frozen=True)
class Immediate:
    """A constant: `kind` is `integer`, or `f32`/`f64`, whose `bits` are then the IEEE pattern."""

    kind: str
    bits: int


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """A variable, function or label by its unique name."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, offset in bytes."""

    base: Operand
    offset: int
    coordinates: tuple[Operand, ...] = ()
    """Of tensors and textures, and what else stands behind a comma: no rule decodes them."""


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Negated:
    """`!predicate`."""

    operand: Operand


@dataclass(frozen=True)
class Pair:
    """`destination|predicate`: two results of one instruction."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Sink:
    """`_`: a result that is thrown away."""


Operand = Register | Immediate | Special | Symbol | Address | Vector | Negated | Pair | Sink


@dataclass(frozen=True)
class Variable:
    """A declared variable in any state space; sizes in bytes."""

    name: str
    space: str
    size: int
    align: int
    element_bytes: int
    initial: bytes | None = None
    relocations: tuple[tuple[int, str], ...] = ()
    """(byte offset, symbol) where `initial` holds the address of another variable."""
    external: bool = False
    generic: tuple[int, ...] = ()
    """Byte offsets in `initial` of addresses that are generic, not of the variable's space."""
    linkage: tuple[str, ...] = ()
    """For example `.visible`."""
    attributes: tuple[str, ...] = ()
    """Words of a parameter's `.ptr`, which change nothing but how ptxas may optimise."""
    kind: tuple[str, ...] = ()
    """Words of its `.attribute(...)`: managed memory, for example."""


@dataclass(frozen=True)
class Call:
    """The callee of a `call` and the unique names of its result and argument variables."""

    target: str
    """Empty for a call through a register."""
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    pointer: Register | None = None
    """The register that holds the callee's address."""
    prototype: str = ""
    """Unique name of the prototype or of the list of targets of a call through a register."""


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction; `index` is its place in the module and the row of its counters."""

    index: int
    function: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    line: int | None
    """1-based line of the source file, at the outermost call site of inlined code."""
    text: str
    call: Call | None = None
    inner_line: int | None = None
    """1-based line of the source file, at the innermost place in it: in a function of the same
    file that was inlined, its own line."""
    ptx_line: int = 0
    """1-based line of the PTX text."""


@dataclass
class Function:
    """A kernel (`entry`) or device function: module.instructions[first:last]."""

    name: str
    entry: bool
    results: tuple[Variable, ...] = ()
    parameters: tuple[Variable, ...] = ()
    first: int = 0
    last: int = 0
    variables: dict[str, Variable] = field(default_factory=dict)
    """Variables declared in the body and parameters, by unique name."""
    labels: dict[str, int] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that brx.idx chooses from, by the name of the table."""
    linkage: tuple[str, ...] = ()
    """For example `.visible`."""
    limits: tuple[str, ...] = ()
    """Words between its parameters and its body: `.maxntid`, `256`, `,`, `1`, ..."""
    registers: dict[str, str] = field(default_factory=dict)
    """Types of the registers that it names, by unique name, in the order of their first use."""
    pragmas: list[tuple[int, str]] = field(default_factory=list)
    """What a `.pragma` says, and the instruction that it stands before."""
    prototypes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Words of each `.callprototype`, by unique name."""


@dataclass
class Module:
    """A parsed PTX file."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    declarations: list[Function] = field(default_factory=list)
    """Functions without a body: vprintf, for example."""
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)


def elements_of(instruction: Instruction) -> int:
    """Return how many elements a load or store moves for each lane."""
    return next((int(word[1:]) for word in instruction.modifiers if word in ("v2", "v4")), 1)
