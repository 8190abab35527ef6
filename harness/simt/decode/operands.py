"""Places registers, constants and variables of a kernel: what every decoding rule builds on."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from ..ptx.records import (
    TYPE_BYTES,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from .encoding import LOCAL_WINDOW, SPECIAL_REGISTERS, Flag, Op, Space, Type

Row = dict[str, int]
"""Fields of one row of encoding.ROW that differ from the defaults."""

LANES = 32
CONSTANT_TAG = 1 << 28
"""Offsets from here are within the constants, which lie behind the last register."""

TYPE_OF: dict[str, Type] = {
    "b8": Type.U8, "u8": Type.U8, "s8": Type.S8, "b16": Type.U16, "u16": Type.U16,
    "s16": Type.S16, "b32": Type.U32, "u32": Type.U32, "s32": Type.S32, "b64": Type.U64,
    "u64": Type.U64, "s64": Type.S64, "f16": Type.F16, "bf16": Type.BF16, "f32": Type.F32,
    "f64": Type.F64, "f16x2": Type.F16X2, "bf16x2": Type.BF16X2, "tf32": Type.TF32,
    "pred": Type.PREDICATE,
}  # fmt: skip
_FLOAT_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


_CLUSTER_OF_ONE: dict[str, int | str] = {
    "%cluster_ctarank": 0, "%cluster_nctarank": 1,
    **{f"%cluster_ctaid.{axis}": 0 for axis in "xyz"},
    **{f"%cluster_nctaid.{axis}": 1 for axis in "xyz"},
    **{f"%clusterid.{axis}": f"%ctaid.{axis}" for axis in "xyz"},
    **{f"%nclusterid.{axis}": f"%nctaid.{axis}" for axis in "xyz"},
}  # fmt: skip
"""Special registers of a launch without clusters: each block is one of its own. Whether somebody
asked for that (`%is_explicit_cluster`) a kernel does not tell."""
RESERVED_SHARED_BYTES = 1024
"""Of a block's shared memory, what CUDA keeps for itself since compute capability 8.0."""
FRAME_BYTES = 8192
"""Stack of a thread where calls make frames: eight times what CUDA gives unasked."""
FUNCTION_STEP = 64
"""Between the addresses of functions: small numbers, so that no data lie there."""


class UnsupportedInstruction(Exception):
    """The simulated GPU does not know this instruction: the candidate needs a real one."""

    def __init__(self, text: str, line: int | None, kernel: str, reason: str = "") -> None:
        where = f" (source line {line})" if line else ""
        why = f": {reason}" if reason else ""
        super().__init__(f"unsupported instruction `{text}`{where} in {kernel}{why}")
        self.text = text
        self.line = line
        self.kernel = kernel
        self.reason = reason


class Frame:
    """Register file, constants and memory layout of one kernel and the functions it calls."""

    def __init__(
        self,
        module: Module,
        kernel: Function,
        dynamic_shared_bytes: int,
        global_addresses: Mapping[str, int],
    ) -> None:
        self.module = module
        self.kernel = kernel
        self.functions, self.stacked = reachable(module, kernel)
        """Calls make frames where a function may call itself or is called by its address."""
        self.operands: list[int] = []
        self.constants = bytearray()
        self.special: dict[str, int] = {}
        self.global_addresses = global_addresses
        self.register_bytes = 0
        self._registers: dict[str, tuple[int, int]] = {}
        self._constant_offsets: dict[tuple[int, int], int] = {}
        self.parameter_offsets, self.parameter_bytes = parameter_layout(kernel)
        self.return_slots = {function.name: self._allocate(4) for function in self.functions}
        self.shared_offsets, static = self._shared_layout()
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.shared_bytes = static + dynamic_shared_bytes
        self.local_offsets: dict[str, int] = {}
        self.frame_bytes: dict[str, int] = {}
        self.local_bytes = self._local_layout()
        self._carry = -1

    # -- registers and constants

    def _allocate(self, width: int) -> int:
        offset = self.register_bytes
        self.register_bytes += max(64, LANES * width) if width > 1 else 64
        return offset

    def register(self, register: Register) -> tuple[int, int]:
        """Return (byte offset, width in bytes) of a register; a predicate has width 1."""
        found = self._registers.get(register.key)
        if found is None:
            width = 1 if register.type == "pred" else max(2, TYPE_BYTES[register.type])
            if width > 8:
                raise ValueError("128-bit registers")
            found = self._registers[register.key] = (self._allocate(width), width)
        return found

    def constant(self, width: int, value: int) -> int:
        """Return the tagged offset of a constant that every lane holds; width 1 is a predicate."""
        value = int(bool(value)) if width == 1 else value & ((1 << (8 * width)) - 1)
        key = (width, value)
        if key not in self._constant_offsets:
            self._constant_offsets[key] = CONSTANT_TAG + len(self.constants)
            if width == 1:
                self.constants += (b"\xff" if value else b"\0") * 64
            else:
                self.constants += value.to_bytes(width, "little") * LANES
        return self._constant_offsets[key]

    def scratch(self, width: int) -> int:
        """Return the offset of a register that no instruction names."""
        return self._allocate(width)

    @property
    def carry(self) -> int:
        """The flag that add.cc sets and addc reads: a predicate without a name."""
        if self._carry < 0:
            self._carry = self._allocate(1)
        return self._carry

    def registers_of(self, function: str) -> list[tuple[int, int]]:
        """Return (offset, width) of every register of one function."""
        return [at for key, at in self._registers.items() if key.split("|")[0] == function]

    def function_address(self, name: str) -> int:
        """Return the number that stands for a function's address."""
        return function_address(self.module, name)

    # -- memory

    def _shared_layout(self) -> tuple[dict[str, int], int]:
        """Static variables that the kernel can reach, then the dynamic part, 16-byte aligned."""
        used = {
            name
            for function in self.functions
            for instruction in self.code(function)
            for name in symbols(instruction.operands)
        }
        variables = [v for v in self.module.variables.values() if v.space == "shared"]
        for function in self.functions:
            variables += [v for v in function.variables.values() if v.space == "shared"]
        offsets: dict[str, int] = {}
        end = 0
        static = [v for v in variables if v.name in used and not (v.external or v.size == 0)]
        for variable in static:
            end = -(-end // variable.align) * variable.align
            offsets[variable.name] = end
            end += variable.size
        dynamic = [v for v in variables if v.external or v.size == 0]
        if dynamic:
            end = -(-end // 16) * 16
            offsets.update({variable.name: end for variable in dynamic})
        return offsets, end

    def _local_layout(self) -> int:
        """Local variables and arguments of every reachable function.

        Where functions do not recurse, at places of their own; else each within its frame.
        """
        end = 0
        for function in self.functions:
            if self.stacked:
                end = 0
            passed_by_kernel = {p.name for p in function.parameters} if function.entry else set()
            for variable in function.variables.values():
                if variable.space not in ("local", "param"):
                    continue
                if variable.name.split("|")[-1] in passed_by_kernel:
                    continue
                align = max(variable.align, 8)
                end = -(-end // align) * align
                self.local_offsets[variable.name] = end
                end += variable.size
            # The return address and what the callee saves take room, too.
            self.frame_bytes[function.name] = -(-end // 16) * 16 + 16
        if self.stacked:
            return max(FRAME_BYTES, sum(self.frame_bytes.values()))
        self._alias_arguments()
        return -(-end // 16) * 16

    def _alias_arguments(self) -> None:
        """A caller's argument variable is the callee's parameter: the call then copies nothing."""
        aliased: dict[str, int] = {}
        for function in self.functions:
            for instruction in self.code(function):
                call = instruction.call
                callee = self.module.functions.get(call.target) if call else None
                if call is None or callee is None:
                    continue
                pairs = [
                    *zip(call.arguments, callee.parameters, strict=False),
                    *zip(call.results, callee.results, strict=False),
                ]
                for passed, declared in pairs:
                    place = self.local_offsets[f"{callee.name}|{declared.name}"]
                    if aliased.setdefault(passed, place) != place:
                        raise self.refuse(instruction, "one argument variable for two functions")
                    self.local_offsets[passed] = place

    def code(self, function: Function) -> list[Instruction]:
        """Return the instructions of one function."""
        return self.module.instructions[function.first : function.last]

    def symbol(self, instruction: Instruction, name: str) -> int:
        """Return the address of a variable within its own space."""
        for places in (self.shared_offsets, self.local_offsets, self.global_addresses):
            if name in places:
                return places[name]
        short = name.split("|")[-1]
        if instruction.function == self.kernel.name and short in self.parameter_offsets:
            return self.parameter_offsets[short]
        if name in self.module.functions:
            return self.function_address(name)
        raise self.refuse(instruction, f"the address of {short} is not known")

    def refuse(self, instruction: Instruction, reason: str = "") -> UnsupportedInstruction:
        """Return the exception that names the instruction and its source line."""
        return UnsupportedInstruction(instruction.text, instruction.line, self.kernel.name, reason)

    def needs_hardware(self, instruction: Instruction, what: str) -> UnsupportedInstruction:
        """Return the exception for an instruction that only a real GPU executes."""
        return self.refuse(instruction, f"{what}: not simulated, this candidate needs a real GPU")

    # -- operands

    def source(self, instruction: Instruction, operand: Operand, type_name: str) -> tuple[int, int]:
        """Return (offset, width) of a value read as the given type."""
        if isinstance(operand, Register):
            return self.register(operand)
        width = 1 if type_name == "pred" else max(2, TYPE_BYTES[type_name])
        if isinstance(operand, Immediate):
            return self.constant(width, immediate_bits(operand, type_name)), width
        if isinstance(operand, Special):
            return self._special(instruction, operand.name)
        if isinstance(operand, Symbol):
            return self.constant(width, self.symbol(instruction, operand.name)), width
        raise self.refuse(instruction, "an operand of this form")

    def _special(self, instruction: Instruction, name: str) -> tuple[int, int]:
        if name == "%dynamic_smem_size":
            return self.constant(4, self.dynamic_shared_bytes), 4
        if name == "%total_smem_size":
            return self.constant(4, self.shared_bytes + RESERVED_SHARED_BYTES), 4
        if name in _CLUSTER_OF_ONE:
            stands_for = _CLUSTER_OF_ONE[name]
            if isinstance(stands_for, str):
                name = stands_for
            else:
                return self.constant(4, stands_for), 4
        if name not in SPECIAL_REGISTERS:
            raise self.refuse(instruction, f"special register {name}")
        width = 8 if name == "%gridid" else 4
        if name not in self.special:
            self.special[name] = self._allocate(width)
        return self.special[name], width

    def destination(self, instruction: Instruction, operand: Operand) -> tuple[int, int]:
        """Return (offset, width) of a result; (-1, 4) when it is thrown away."""
        if isinstance(operand, Sink):
            return -1, 4
        if isinstance(operand, Register):
            return self.register(operand)
        raise self.refuse(instruction, "a result of this form")

    def vector(
        self, instruction: Instruction, items: Iterable[Operand], type_name: str, writes: bool
    ) -> int:
        """Append (offset, width) pairs to the operand list and return where they start."""
        start = len(self.operands)
        for item in items:
            if writes:
                self.operands += self.destination(instruction, item)
            else:
                self.operands += self.source(instruction, item, type_name)
        return start

    def address(self, instruction: Instruction, operand: Operand, row: Row) -> None:
        """Set source0, source_width and immediate to a memory operand."""
        if not isinstance(operand, Address):
            raise self.refuse(instruction, "an address of this form")
        base = operand.base
        row["immediate"] = operand.offset
        if isinstance(base, Register):
            row["source0"], row["source_width"] = self.register(base)
        elif isinstance(base, Immediate):
            row["immediate"] += base.bits
        elif isinstance(base, Symbol):
            row["immediate"] += self.symbol(instruction, base.name)
            if self.stacked and base.name in self.local_offsets:
                row["flags"] = row.get("flags", 0) | Flag.FRAME
            if row.get("space") == Space.GENERIC and base.name in self.local_offsets:
                row["immediate"] += LOCAL_WINDOW
        else:
            raise self.refuse(instruction, "an address of this form")


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the parts of a vector operand, or the operand itself."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def new_row(op: Op) -> Row:
    """Return a row with its operation set."""
    return {"opcode": int(op)}


def symbols(operands: Iterable[Operand]) -> Iterable[str]:
    """Yield the names of all variables that operands mention."""
    for operand in operands:
        if isinstance(operand, Symbol):
            yield operand.name
        elif isinstance(operand, Address):
            yield from symbols((operand.base,))
        elif isinstance(operand, Vector):
            yield from symbols(operand.items)


def immediate_bits(operand: Immediate, type_name: str) -> int:
    """Return the bit pattern of a constant where a value of the given type is expected."""
    if operand.kind == "integer":
        if type_name in _FLOAT_FORMATS:
            return int.from_bytes(struct.pack(_FLOAT_FORMATS[type_name], operand.bits), "little")
        return operand.bits
    negative, bits = operand.bits < 0, abs(operand.bits)
    width = 4 if operand.kind == "f32" else 8
    value = struct.unpack(_FLOAT_FORMATS[operand.kind], bits.to_bytes(width, "little"))[0]
    if type_name not in _FLOAT_FORMATS or (type_name == operand.kind and not negative):
        return bits
    data = struct.pack(_FLOAT_FORMATS[type_name], -value if negative else value)
    return int.from_bytes(data, "little")


def parameter_layout(kernel: Function) -> tuple[dict[str, int], int]:
    """Return the byte offset of every kernel parameter and the size of all."""
    offsets: dict[str, int] = {}
    end = 0
    for parameter in kernel.parameters:
        end = -(-end // parameter.align) * parameter.align
        offsets[parameter.name] = end
        end += parameter.size
    return offsets, end


def function_address(module: Module, name: str) -> int:
    """Return the number that stands for the address of a module's function."""
    return FUNCTION_STEP * (1 + list(module.functions).index(name))


def reachable(module: Module, kernel: Function) -> tuple[list[Function], bool]:
    """Return the kernel and the functions it may call, and whether their calls need frames."""
    order: list[Function] = []
    active: list[str] = []
    stacked = False

    def visit(function: Function) -> None:
        nonlocal stacked
        active.append(function.name)
        order.append(function)
        for instruction in module.instructions[function.first : function.last]:
            made = instruction.call
            targets = [made.target] if made and made.target in module.functions else []
            if made and not made.target:
                stacked = True
                targets = addressed(module)
            for target in targets:
                callee = module.functions[target]
                stacked = stacked or callee.name in active
                if all(callee.name != known.name for known in order):
                    visit(callee)
        active.pop()

    visit(kernel)
    return order, stacked


def addressed(module: Module) -> list[str]:
    """Return the device functions whose address is taken somewhere in the module."""
    names = {name for v in module.variables.values() for _, name in v.relocations}
    for instruction in module.instructions:
        names.update(symbols(instruction.operands))
    return [name for name, f in module.functions.items() if name in names and not f.entry]
