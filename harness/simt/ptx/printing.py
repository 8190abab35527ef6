"""Writes a parsed module as PTX again, each statement on an imagined source line of its own number.

Nothing of the text that was parsed is copied but words that no rule here reads (pragmas, launch
limits, prototypes): every name is the unique one that the parser gave it, scopes and comments are
gone, constants are the bits that were understood. So what ptxas makes of it is what it makes of our
reading: where that is the machine code of the candidate's own PTX, both were read alike. And ptxas
carries the numbers into the line table, so that each machine instruction names its statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .records import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

_HEX_DIGITS = {"f32": ("0f", 8), "f64": ("0d", 16)}


def print_module(module: Module) -> str:
    """Return the module as PTX; the n-th instruction stands on line n."""
    return "\n".join(_module(module)) + "\n"


def _module(module: Module) -> Iterator[str]:
    yield f".version {module.version}"
    yield f".target {module.target}"
    yield ".address_size 64"
    yield '.file 1 "statements"'
    for function in module.declarations:
        yield f"{_head(function)};"
    for function in module.functions.values():
        if not function.entry:
            yield f"{_head(function)};"
    for variable in module.variables.values():
        yield f"{_variable(variable)};"
    for function in module.functions.values():
        yield _head(function)
        yield "{"
        yield from _body(module, function)
        yield "}"


def _head(function: Function) -> str:
    kind = ".entry" if function.entry else ".func"
    results = f"({_parameters(function.results)})" if function.results else ""
    return " ".join(
        (*function.linkage, kind, results, function.name,
         f"({_parameters(function.parameters)})", *function.limits)
    )  # fmt: skip


def _parameters(variables: Iterable[Variable]) -> str:
    return ", ".join(map(_variable, variables))


def _variable(variable: Variable) -> str:
    """Return a declaration as an array of whole numbers; of addresses where it holds any."""
    words = [*variable.linkage, f".{variable.space}", *variable.kind]
    scalar = variable.space == "param" and variable.size == variable.element_bytes
    if not scalar:
        words += [f".align {variable.align}"]
    element = variable.element_bytes
    words += [f".u{8 * element}", *variable.attributes, _name(variable.name)]
    text = " ".join(words)
    if not scalar:
        text += f"[{variable.size // element}]" if variable.size else "[]"
    if variable.initial is not None:
        text += f" = {{{', '.join(_initial(variable, variable.initial))}}}"
    return text


def _initial(variable: Variable, data: bytes) -> Iterator[str]:
    addresses = dict(variable.relocations)
    for at in range(0, len(data), variable.element_bytes):
        if at in addresses:
            name = addresses[at]
            yield f"generic({name})" if at in variable.generic else name
        else:
            yield str(int.from_bytes(data[at : at + variable.element_bytes], "little"))


def _body(module: Module, function: Function) -> Iterator[str]:
    for key, type_name in function.registers.items():
        yield f".reg .{type_name} {_name(key)};"
    own = {f"{function.name}|{each.name}" for each in (*function.parameters, *function.results)}
    for name, variable in function.variables.items():
        if name not in own:
            yield f"{_variable(variable)};"
    for name, words in function.prototypes.items():
        yield f"{_name(name)}: {' '.join(words)};"
    labels: dict[int, list[str]] = {}
    for name, index in function.labels.items():
        labels.setdefault(index, []).append(name)
    for name, targets in function.branch_tables.items():
        yield f"{_name(name)}: .branchtargets {', '.join(map(_name, targets))};"
    pragmas: dict[int, list[str]] = {}
    for index, text in function.pragmas:
        pragmas.setdefault(index, []).append(text)
    for index in range(function.first, function.last + 1):
        yield from (f"{_name(label)}:" for label in labels.get(index, ()))
        yield from (f".pragma {text};" for text in pragmas.get(index, ()))
        if index < function.last:
            yield f".loc 1 {index + 1} 1"
            yield f"{_instruction(module.instructions[index])};"


def _instruction(instruction: Instruction) -> str:
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' * instruction.guard_negated}{_name(instruction.guard.key)} "
    opcode = ".".join((instruction.opcode, *instruction.modifiers))
    call = instruction.call
    if call is None:
        return f"{guard}{opcode} {_operands(instruction.operands)}"
    parts = [f"({', '.join(map(_name, call.results))})"] if call.results else []
    parts.append(_name(call.pointer.key) if call.pointer else call.target)
    if call.arguments or call.prototype:
        parts.append(f"({', '.join(map(_name, call.arguments))})")
    if call.prototype:
        parts.append(_name(call.prototype))
    return f"{guard}{opcode} {', '.join(parts)}"


def _operands(operands: Sequence[Operand]) -> str:
    return ", ".join(map(_operand, operands))


def _operand(operand: Operand) -> str:
    match operand:
        case Register(key=key):
            return _name(key)
        case Symbol(name=name):
            return _name(name)
        case Special(name=name):
            return name
        case Immediate():
            return _constant(operand)
        case Address(base=base, offset=offset, coordinates=coordinates):
            first = f"{_operand(base)}+{offset}" if offset else _operand(base)
            return f"[{', '.join((first, *map(_operand, coordinates)))}]"
        case Vector(items=items):
            return f"{{{_operands(items)}}}"
        case Negated(operand=inner):
            return f"!{_operand(inner)}"
        case Pair(first=left, second=right):
            return f"{_operand(left)}|{_operand(right)}"
        case Sink():
            return "_"


def _constant(constant: Immediate) -> str:
    if constant.kind == "integer":
        return str(constant.bits)
    prefix, digits = _HEX_DIGITS[constant.kind]
    return f"{prefix}{constant.bits:0{digits}X}"


def _name(unique: str) -> str:
    """Return a unique name as PTX can have it: those of inner scopes end with their number."""
    scope, _, name = unique.rpartition("|")[2].rpartition(".")
    return f"{name}$scope{scope}" if scope else name
