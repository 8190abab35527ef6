"""Parses PTX text into plain records: variables, functions, instructions, source lines."""

from __future__ import annotations

import re
from dataclasses import replace

from ...vetting.ptx_tokens import NotPtx, Token, end_of_location, tokens_of
from .constants import begins_constant, read_constant, read_number
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
from .scopes import Place, Scopes
from .source_lines import SourceLines

__all__ = ["Function", "Instruction", "Module", "PtxError", "Variable", "parse"]

_SPECIAL_PREFIXES = (
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask",
    "%clock", "%globaltimer", "%smid", "%nsmid", "%gridid", "%dynamic_smem", "%total_smem",
    "%cluster", "%ncluster", "%is_explicit", "%envreg", "%aggr_smem", "%pm", "%reserved",
)  # fmt: skip
_SELECTORS = {".x": ".x", ".y": ".y", ".z": ".z", ".w": ".w",
              ".r": ".x", ".g": ".y", ".b": ".z", ".a": ".w"}  # fmt: skip
_VARIABLE_SPACES = (".global", ".const", ".shared", ".local", ".param")
_LINKAGE = (".visible", ".weak", ".common", ".extern")
_LIMITS = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn",
    ".explicitcluster", ".reqnctapercluster", ".maxclusterrank", ".blocksareclusters",
)  # fmt: skip


def parse(text: str) -> Module:
    """Parse one PTX file, given with its own line ends (`ptx_tokens.tokens_of`).

    Raises:
        PtxError: the text is not PTX that this parser understands.
    """
    try:
        parser = _Parser(tokens_of(text))
    except NotPtx as problem:
        raise PtxError(str(problem)) from problem
    try:
        return parser.module()
    except IndexError:
        raise PtxError("the PTX text ends inside a statement", parser.line) from None
    except NotPtx as problem:
        raise PtxError(str(problem), parser.line) from problem
    except PtxError as problem:
        if problem.line is None and parser.line is not None:
            raise parser.error(str(problem)) from None
        raise
    except RecursionError:
        raise PtxError("PTX that nests too deeply", parser.line) from None


class _Parser:
    """A cursor over the tokens, and what has been read of the module."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [token.text for token in tokens]
        self.placed = tokens
        self.at = 0
        self.result = Module()
        self.scopes: Scopes | None = None
        """Of the function that is being read, or was last."""
        self.source = SourceLines(tokens)
        self.jumps: list[tuple[int, Place]] = []
        """Instructions of this function that name labels, and where each stands."""

    @property
    def line(self) -> int | None:
        return self.source.outermost

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

    def until(self, end: str) -> tuple[str, ...]:
        """Take all tokens before one, and that one."""
        start = self.at
        while self.take() != end:
            pass
        return tuple(self.tokens[start : self.at - 1])

    def location(self) -> tuple[str, ...]:
        """Take the rest of a .loc or .file."""
        start, self.at = self.at, end_of_location(self.placed, self.at - 1)
        return tuple(self.tokens[start : self.at])

    def constant(self) -> Immediate:
        return read_constant(self.peek, self.take)

    def whole(self) -> int:
        found = self.constant()
        if found.kind != "integer":
            raise self.error("expected a whole number")
        return found.bits

    def error(self, problem: str) -> PtxError:
        near = " ".join(self.tokens[max(0, self.at - 4) : self.at + 8])
        return PtxError(f"{problem} near: {near}", self.line)

    # -- module level

    def module(self) -> Module:
        linkage: tuple[str, ...] = ()
        while self.at < len(self.tokens):
            token = self.take()
            if token == ".version":
                self.result.version = self.take()
            elif token == ".target":
                self.result.target = self.take()
                while self.accept(","):
                    self.take()
            elif token == ".address_size":
                self.take()
            elif token in _LINKAGE:
                linkage += (token,)
                continue
            elif token in (".global", ".const", ".shared"):
                variable = self.variable(token[1:], linkage)
                if variable.name in self.result.variables:
                    raise self.error(f"{variable.name} is declared twice")
                self.result.variables[variable.name] = variable
                self.expect(";")
            elif token in (".entry", ".func"):
                self.function_definition(token == ".entry", linkage)
            elif token in (".loc", ".file"):
                self.location()
            elif token == ".section":
                self.until("{")
                self.until("}")
            else:
                raise self.error(f"unknown directive {token!r}")
            linkage = ()
        return self.result

    def variable(self, space: str, linkage: tuple[str, ...] = ()) -> Variable:
        """Parse a declaration after its space: [.align N] .type name [dimensions] [= initial]."""
        align, type_name, lanes = 1, "", 1
        attributes: tuple[str, ...] = ()
        kind: tuple[str, ...] = ()
        while self.peek().startswith("."):
            word = self.take()
            if word == ".align":
                align = self.whole()
            elif word in (".v2", ".v4"):
                lanes = int(word[2:])
            elif word[1:] in TYPE_BYTES:
                type_name = word[1:]
            elif word == ".ptr":  # what it points to does not change the parameter's own layout
                start = self.at - 1
                while self.peek().startswith("."):
                    if self.take() == ".align":
                        self.take()
                attributes = tuple(self.tokens[start : self.at])
            elif word == ".attribute":
                kind = (word, *self.until(")"), ")")
            else:
                raise self.error(f"a declaration with {word}")
        if not type_name:
            raise self.error("declaration without a type")
        name, count = self.take(), 1
        while self.accept("["):
            if self.accept("]"):
                count = 0
            else:
                count *= self.whole()
                self.expect("]")
        element = TYPE_BYTES[type_name]
        variable = Variable(
            name, space, element * lanes * count, max(align, element * lanes), element,
            external=".extern" in linkage, linkage=linkage, attributes=attributes, kind=kind,
        )  # fmt: skip
        return self.initialised(variable) if self.accept("=") else variable

    def initialised(self, variable: Variable) -> Variable:
        """Parse `{1, 0F3f800000, generic(symbol)+8, symbol, ...}`, or one value without braces."""
        element, data = variable.element_bytes, bytearray()
        relocations: list[tuple[int, str]] = []
        generic: list[int] = []
        while self.peek() != ";":
            if self.peek() in ("{", "}", ","):
                self.take()
            elif begins_constant(self.peek()):
                value = self.constant().bits
                data += (value & (1 << (8 * element)) - 1).to_bytes(element, "little")
            else:
                word = self.take()
                if word == "generic" and self.accept("("):
                    generic.append(len(data))
                    word = self.take()
                    self.expect(")")
                relocations.append((len(data), word))
                addend = self.whole() if self.peek() in ("+", "-") else 0
                data += (addend & (1 << (8 * element)) - 1).to_bytes(element, "little")
        for offset, _ in relocations:
            if any(data[offset : offset + 8]):
                raise self.error("a variable that begins with an address inside of another")
        return replace(
            variable, initial=bytes(data).ljust(variable.size, b"\0"),
            relocations=tuple(relocations), generic=tuple(generic),
        )  # fmt: skip

    def parameter_list(self) -> tuple[Variable, ...]:
        """Parse `(.param .type name, ...)`."""
        found = []
        self.expect("(")
        while not self.accept(")"):
            if self.accept(","):
                continue
            if self.take() != ".param":
                raise self.error("expected a parameter")
            found.append(self.variable("param"))
        return tuple(found)

    def function_definition(self, entry: bool, linkage: tuple[str, ...]) -> None:
        results: tuple[Variable, ...] = ()
        if not entry and self.peek() == "(":
            results = self.parameter_list()
        function = Function(self.take(), entry, results, linkage=linkage)
        if self.peek() == "(":
            function.parameters = self.parameter_list()
        start = self.at
        while self.peek() not in "{;":
            word = self.take()
            if word.startswith(".") and word not in _LIMITS:
                raise self.error(f"a function with {word}")
        function.limits = tuple(self.tokens[start : self.at])
        if self.take() == ";":
            self.result.declarations.append(function)
            return
        if function.name in self.result.functions:
            raise self.error(f"{function.name} is defined twice")
        self.result.functions[function.name] = function
        function.first = len(self.result.instructions)
        self.source.forget()
        self.jumps = []
        self.scopes = Scopes(function)
        for variable in (*function.parameters, *function.results):
            self.scopes.declare(variable)
        self.body(function, self.scopes)
        function.last = len(self.result.instructions)
        for index, place in self.jumps:
            self.land(index, self.scopes, place)

    # -- inside a function

    def body(self, function: Function, scopes: Scopes) -> None:
        tables: list[tuple[str, tuple[str, ...], Place]] = []
        while not scopes.are_closed:
            token = self.take()
            if token == "{":
                scopes.begin()
            elif token == "}":
                scopes.end()
            elif token == ".loc":
                self.source.go_to(self.location())
            elif token == ".file":  # where tests write it; ptxas takes none here
                self.location()
            elif token == ".reg":
                self.registers(scopes)
            elif token in (".shared", ".local", ".param"):
                scopes.declare(self.variable(token[1:]))
                self.expect(";")
            elif token == ".pragma":
                function.pragmas.append((len(self.result.instructions), " ".join(self.until(";"))))
            elif self.peek() == ":" and not token.startswith("."):
                self.take()
                name = scopes.add_label(token)
                if self.accept(".branchtargets"):
                    tables.append((name, self.until(";"), scopes.place))
                elif self.peek() in (".callprototype", ".calltargets"):
                    function.prototypes[name] = self.until(";")
                else:
                    function.labels[name] = len(self.result.instructions)
            else:
                self.at -= 1
                self.instruction(function, scopes)
        for name, labels, place in tables:
            function.branch_tables[name] = tuple(
                scopes.label(label, place) for label in labels if label != ","
            )

    def land(self, index: int, scopes: Scopes, place: Place) -> None:
        """Give the labels that an instruction names their unique names."""
        instructions = self.result.instructions
        here = instructions[index]
        operands = tuple(
            Symbol(scopes.label(each.name, place)) if isinstance(each, Symbol) else each
            for each in here.operands
        )
        call = here.call
        if call is not None and call.prototype:
            call = replace(call, prototype=scopes.label(call.prototype, place))
        instructions[index] = replace(here, operands=operands, call=call)

    def registers(self, scopes: Scopes) -> None:
        """Parse `.reg .type %name<count>, %other;`."""
        type_name = self.take()[1:]
        if type_name not in TYPE_BYTES:
            raise self.error(f"registers of type {type_name}")
        while not self.accept(";"):
            if self.accept(","):
                continue
            name = self.take()
            if self.accept("<"):
                scopes.add_family(name, read_number(self.take()).bits, type_name)
                self.expect(">")
            else:
                scopes.add_register(name, type_name)

    def lookup(self, name: str) -> Operand | None:
        return self.scopes.lookup(name) if self.scopes else None

    def register(self) -> Register:
        found = self.lookup(self.take())
        if not isinstance(found, Register):
            raise self.error("expected a register")
        return found

    def operand(self) -> Operand:
        if self.accept("{"):
            items = []
            while not self.accept("}"):
                if not self.accept(","):
                    items.append(self.operand())
            return Vector(tuple(items))
        if self.accept("["):
            return self.address()
        if self.accept("!"):
            return Negated(self.register())
        if begins_constant(self.peek()):
            return self.constant()
        token = self.take()
        if token == "_":
            return Sink()
        found = self.lookup(token)
        if self.peek().startswith("."):
            selector = _SELECTORS.get(self.take())
            if found is not None or selector is None or not token.startswith(_SPECIAL_PREFIXES):
                raise self.error("a part of a register")
            return Special(token + selector)
        if found is not None:
            return found
        if token == "WARP_SZ":
            return Immediate("integer", 32)
        if not (token[0].isalpha() or token[0] in "_$%") or len(token) < 2 and token in "_$%":
            raise self.error("expected an operand")
        return Special(token) if token.startswith(_SPECIAL_PREFIXES) else Symbol(token)

    def address(self) -> Operand:
        base, offset = self.operand(), 0
        coordinates: list[Operand] = []
        while not self.accept("]"):
            if self.peek() in ("+", "-"):
                offset += self.whole()
            elif self.accept(","):
                coordinates.append(self.operand())
            else:
                raise self.error("unknown address")
        return Address(base, offset, tuple(coordinates))

    def instruction(self, function: Function, scopes: Scopes) -> None:
        start, guard, negated = self.at, None, False
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.register()
        opcode, modifiers = self.take(), []
        if not opcode.isidentifier():
            raise self.error("expected an instruction")
        while self.peek().startswith("."):
            # `::` belongs to a modifier (.shared::cta).
            modifiers.append(self.take()[1:])
        operands: list[Operand] = []
        call = None
        if opcode == "call":
            call = self.call()
        else:
            while self.peek() != ";":
                if self.accept("|"):
                    operands[-1] = Pair(operands[-1], self.operand())
                    self.accept(",")
                    continue
                operands.append(self.operand())
                if self.peek() not in ("|", ";"):
                    self.expect(",")
        if opcode in ("bra", "brx") or call is not None and call.prototype:
            self.jumps.append((len(self.result.instructions), scopes.place))
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
                text=_joined(self.tokens[start : self.at]),
                call=call,
                inner_line=self.source.innermost,
                ptx_line=self.placed[start].line,
            )
        )
        self.expect(";")

    def call(self) -> Call:
        """Parse `(results), target, (arguments), prototype`, each part but the target optional."""
        results: tuple[str, ...] = ()
        if self.peek() == "(":
            results = self.names()
            self.expect(",")
        target = self.take()
        found = self.lookup(target)
        pointer = found if isinstance(found, Register) else None
        arguments: tuple[str, ...] = ()
        prototype = ""
        if self.accept(","):
            if self.peek() == "(":
                arguments = self.names()
                if self.accept(","):
                    prototype = self.take()
            else:
                prototype = self.take()
        return Call("" if pointer else target, results, arguments, pointer, prototype)

    def names(self) -> tuple[str, ...]:
        found = []
        self.expect("(")
        while not self.accept(")"):
            if self.accept(","):
                continue
            named = self.lookup(self.take())
            if not isinstance(named, Symbol | Register):
                raise self.error("an argument that is no variable")
            found.append(named.name if isinstance(named, Symbol) else named.key)
        return tuple(found)


def _joined(tokens: list[str]) -> str:
    """Put tokens together again as one readable line."""
    text = re.sub(r"(?<=\w) (\.\w)", r"\1", " ".join(tokens))
    text = re.sub(r" ([,;\])}>])", r"\1", text)
    return re.sub(r"([@!\[({<-]) ", r"\1", text)
