"""Parses PTX text into plain records: variables, functions, instructions, source lines."""

from __future__ import annotations

import struct

from .records import (
    TYPE_BYTES,
    Address,
    Call,
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    PtxError,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from .scopes import Scopes
from .tokens import joined, tokens_of

__all__ = ["Function", "Instruction", "Module", "PtxError", "Variable", "parse"]

_SPECIAL_PREFIXES = (
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask",
    "%clock", "%globaltimer", "%smid", "%nsmid", "%gridid", "%dynamic_smem", "%total_smem",
    "%cluster", "%ncluster", "%is_explicit", "%envreg", "%aggr_smem", "%pm", "%reserved",
)  # fmt: skip
_VARIABLE_SPACES = (".global", ".const", ".shared", ".local", ".param")


def parse(text: str) -> Module:
    """Parse one PTX file.

    Raises:
        PtxError: the text is not PTX that this parser understands.
    """
    parser = _Parser(list(tokens_of(text)))
    try:
        return parser.module()
    except IndexError:
        raise PtxError("the PTX text ends inside a statement", parser.line) from None


def _float_bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


class _Parser:
    """A cursor over the tokens, and what has been read of the module."""

    def __init__(self, tokens: list[tuple[str, int]]) -> None:
        self.tokens = [token for token, _ in tokens]
        self.ptx_lines = [line for _, line in tokens]
        self.at = 0
        self.result = Module()
        self.scopes: Scopes | None = None
        """Of the function that is being read, or was last."""
        self.line: int | None = None
        self.inner_line: int | None = None

    # -- cursor

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead]

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}")

    def skip_statement(self) -> None:
        while self.take() != ";":
            pass

    def error(self, problem: str) -> PtxError:
        near = " ".join(self.tokens[max(0, self.at - 4) : self.at + 8])
        return PtxError(f"{problem} near: {near}", self.line)

    # -- module level

    def module(self) -> Module:
        while self.at < len(self.tokens):
            token = self.take()
            if token == ".target":
                self.result.target = self.take()
                while self.accept(","):
                    self.take()
            elif token in (".version", ".address_size"):
                self.take()
            elif token in (".visible", ".weak", ".common", ".extern", ";"):
                continue
            elif token in (".global", ".const", ".shared"):
                external = self.tokens[self.at - 2] == ".extern"
                variable = self.variable(token[1:], external)
                self.result.variables[variable.name] = variable
                self.expect(";")
            elif token in (".entry", ".func"):
                self.function_definition(entry=token == ".entry")
            elif token in (".alias", ".pragma"):
                self.skip_statement()
            elif token == ".loc":
                self.skip_statement()
            else:
                raise self.error(f"unknown directive {token!r}")
        return self.result

    def variable(self, space: str, external: bool = False) -> Variable:
        """Parse a declaration after its space: [.align N] .type name [dimensions] [= initial]."""
        align, type_name, lanes = 1, "", 1
        while self.peek().startswith("."):
            word = self.take()
            if word == ".align":
                align = int(self.take())
            elif word in (".v2", ".v4"):
                lanes = int(word[2:])
            elif word[1:] in TYPE_BYTES:
                type_name = word[1:]
            elif word == ".ptr":  # what it points to does not change the parameter's own layout
                while self.peek().startswith("."):
                    if self.take() == ".align":
                        self.take()
            elif word == ".attribute":
                while self.take() != ")":
                    pass
        if not type_name:
            raise self.error("declaration without a type")
        name, count = self.take(), 1
        while self.accept("["):
            if self.accept("]"):
                count = 0
            else:
                count *= int(self.take().rstrip("U"), 0)
                self.expect("]")
        element = TYPE_BYTES[type_name]
        size = element * lanes * count
        initial: bytes | None = None
        relocations: tuple[tuple[int, str], ...] = ()
        if self.accept("="):
            initial, relocations = self.initialiser(element, size)
        return Variable(
            name, space, size, max(align, element), element, initial, relocations, external
        )

    def initialiser(self, element: int, size: int) -> tuple[bytes, tuple[tuple[int, str], ...]]:
        data, relocations = bytearray(), []
        while self.peek() != ";":
            word = self.take()
            if word in "{},()":
                continue
            if word == "generic":  # generic(symbol): global addresses are generic already
                continue
            if word == "-":
                data += (-self.number(self.take()).bits).to_bytes(element, "little", signed=True)
            elif word == "+":
                addend = self.number(self.take()).bits
                offset = len(data) - element
                data[offset:] = addend.to_bytes(element, "little")
            elif word[0].isdigit():
                bits = self.number(word).bits
                data += (bits & ((1 << (8 * element)) - 1)).to_bytes(element, "little")
            else:
                relocations.append((len(data), word))
                data += bytes(element)
        return bytes(data).ljust(size, b"\0"), tuple(relocations)

    def parameter_list(self) -> tuple[Variable, ...]:
        """Parse `(.param .type name, ...)`."""
        found = []
        self.expect("(")
        while not self.accept(")"):
            if self.accept(","):
                continue
            if self.take() not in (".param", ".reg"):
                raise self.error("expected a parameter")
            found.append(self.variable("param"))
        return tuple(found)

    def function_definition(self, entry: bool) -> None:
        results: tuple[Variable, ...] = ()
        if not entry and self.peek() == "(":
            results = self.parameter_list()
        function = Function(self.take(), entry, results)
        if self.peek() == "(":
            function.parameters = self.parameter_list()
        while self.peek() not in "{;":
            self.take()  # .maxntid, .minnctapersm, .noreturn: limits, checked by ptxas
        if self.take() == ";":
            return  # a declaration
        self.result.functions[function.name] = function
        function.first = len(self.result.instructions)
        self.line = self.inner_line = None
        self.scopes = Scopes(function)
        for variable in (*function.parameters, *function.results):
            self.scopes.declare(variable)
        self.body(function, self.scopes)
        function.last = len(self.result.instructions)

    # -- inside a function

    def body(self, function: Function, scopes: Scopes) -> None:
        while not scopes.are_closed:
            token = self.take()
            if token == "{":
                scopes.begin()
            elif token == "}":
                scopes.end()
            elif token == ";":
                continue
            elif token == ".loc":
                self.line = int(self.take()) or None
                self.inner_line = int(self.take()) or None
                self.expect(";")
            elif token == ".reg":
                self.registers(scopes)
            elif token in _VARIABLE_SPACES:
                scopes.declare(self.variable(token[1:]))
                self.expect(";")
            elif token in (".pragma", ".branchtargets", ".callprototype", ".calltargets"):
                self.skip_statement()
            elif self.peek() == ":" and not token.startswith("."):
                self.take()
                function.labels[token] = len(self.result.instructions)
                if self.accept(".branchtargets"):
                    function.branch_tables[token] = self.label_list()
            else:
                self.at -= 1
                self.instruction(function)

    def label_list(self) -> tuple[str, ...]:
        found = []
        while not self.accept(";"):
            if not self.accept(","):
                found.append(self.take())
        return tuple(found)

    def registers(self, scopes: Scopes) -> None:
        """Parse `.reg .type %name<count>, %other;`."""
        type_name = self.take()[1:]
        while not self.accept(";"):
            if self.accept(","):
                continue
            name = self.take()
            if self.accept("<"):
                self.take()
                self.expect(">")
                scopes.add_family(name, type_name)
            else:
                scopes.add_register(name, type_name)

    def lookup(self, name: str) -> Operand | None:
        return self.scopes.lookup(name) if self.scopes else None

    def register(self) -> Register:
        found = self.lookup(self.take())
        if not isinstance(found, Register):
            raise self.error("expected a register")
        return found

    def number(self, token: str) -> Immediate:
        if token[:2] in ("0f", "0F"):
            return Immediate("f32", int(token[2:], 16))
        if token[:2] in ("0d", "0D"):
            return Immediate("f64", int(token[2:], 16))
        token = token.rstrip("U")
        if "." in token:
            return Immediate("f64", _float_bits(float(token)))
        return Immediate("integer", int(token, 0))

    def operand(self) -> Operand:
        if self.accept("{"):
            items = []
            while not self.accept("}"):
                if not self.accept(","):
                    items.append(self.operand())
            return Vector(tuple(items))
        if self.accept("["):
            return self.address()
        if self.accept("-"):
            value = self.number(self.take())
            return Immediate(value.kind, -value.bits)
        if self.accept("!"):
            return Negated(self.operand())
        token = self.take()
        if token[0].isdigit():
            return self.number(token)
        if token == "_":
            return Sink()
        if token == "WARP_SZ":
            return Immediate("integer", 32)
        found = self.lookup(token)
        if found is not None:
            return found
        if token.startswith(_SPECIAL_PREFIXES):
            return Special(token)
        return Symbol(token)

    def address(self) -> Operand:
        base, offset = self.operand(), 0
        while not self.accept("]"):
            sign = self.take()
            if sign == "+":
                sign = "-" if self.accept("-") else "+"
                value = self.number(self.take()).bits
                offset += value if sign == "+" else -value
            elif sign == "-":
                offset -= self.number(self.take()).bits
            elif sign == ",":  # coordinates of a tensor or texture: the decoder refuses them
                self.operand()
            else:
                raise self.error("unknown address")
        return Address(base, offset)

    def instruction(self, function: Function) -> None:
        start, guard, negated = self.at, None, False
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.register()
        # `::` belongs to a modifier (shared::cta), so split only at single dots.
        opcode, *modifiers = self.take().split(".")
        if not opcode.isidentifier():
            raise self.error("expected an instruction")
        operands: list[Operand] = []
        call = None
        if opcode == "call":
            call = self.call()
        else:
            while self.peek() != ";":
                if self.accept(","):
                    continue
                if self.accept("|"):
                    operands[-1] = Pair(operands[-1], self.operand())
                else:
                    operands.append(self.operand())
        self.result.instructions.append(
            Instruction(
                index=len(self.result.instructions),
                function=function.name,
                opcode=opcode,
                modifiers=tuple(modifiers),
                operands=tuple(operands),
                guard=guard,
                guard_negated=negated,
                line=self.line,
                text=joined(self.tokens[start : self.at]),
                call=call,
                inner_line=self.inner_line,
                ptx_line=self.ptx_lines[start],
            )
        )
        self.expect(";")

    def call(self) -> Call:
        """Parse `(results), target, (arguments)`, each part but the target optional."""
        results: tuple[str, ...] = ()
        if self.peek() == "(":
            results = self.names()
            self.expect(",")
        target = self.take()
        found = self.lookup(target)
        pointer = found if isinstance(found, Register) else None
        if pointer:
            target = ""
        arguments: tuple[str, ...] = ()
        if self.accept(",") and self.peek() == "(":
            arguments = self.names()
        while self.peek() != ";":
            self.take()
        return Call(target, results, arguments, pointer)

    def names(self) -> tuple[str, ...]:
        found = []
        self.expect("(")
        while not self.accept(")"):
            if self.accept(","):
                continue
            token = self.take()
            named = self.lookup(token)
            found.append(named.name if isinstance(named, Symbol) else token)
        return tuple(found)
