"""The names of one PTX function: its scopes, what is declared in each, and registers by family."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .records import Function, Operand, PtxError, Register, Symbol, Variable


@dataclass
class _Scope:
    prefix: str
    """Stands before the names of this scope where they have to be unique in the function."""
    names: dict[str, Operand] = field(default_factory=dict)
    families: list[tuple[str, int, str]] = field(default_factory=list)
    """Prefix, count and type of registers that were declared by their number: `%r<12>`."""
    labels: set[str] = field(default_factory=set)


Place = tuple[_Scope, ...]
"""The scopes around a place of the text, the innermost last."""


class Scopes:
    """Gives every register, variable and label of a function a name that is unique in it."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._open = [_Scope("")]
        self._opened = 0

    @property
    def are_closed(self) -> bool:
        """Whether the function's own scope has ended too."""
        return not self._open

    @property
    def place(self) -> Place:
        """The scopes that are open."""
        return tuple(self._open)

    def begin(self) -> None:
        """Open a scope within the last one."""
        self._opened += 1
        self._open.append(_Scope(f"{self._opened}."))

    def end(self) -> None:
        """Close the last scope."""
        self._open.pop()

    def declare(self, variable: Variable) -> None:
        """Add a variable to the last scope, and under its unique name to the function."""
        scope = self._open[-1]
        self._require_new(variable.name)
        unique = self._unique(scope, variable.name)
        self.function.variables[unique] = replace(variable, name=unique)
        scope.names[variable.name] = Symbol(unique)

    def add_register(self, name: str, type_name: str) -> None:
        """Add one register to the last scope."""
        self._require_new(name)
        self._add(self._open[-1], name, type_name)

    def add_family(self, prefix: str, count: int, type_name: str) -> None:
        """Add registers named by a prefix and a number to the last scope."""
        self._open[-1].families.append((prefix, count, type_name))

    def add_label(self, name: str) -> str:
        """Add a label to the last scope and return its unique name."""
        scope = self._open[-1]
        self._require_new(name)
        scope.labels.add(name)
        return scope.prefix + name

    def lookup(self, name: str) -> Operand | None:
        """Find a name in the open scopes; members of a register family are made on first use."""
        for scope in reversed(self._open):
            if name in scope.names:
                return scope.names[name]
            for prefix, count, type_name in scope.families:
                number = name[len(prefix) :]
                if name.startswith(prefix) and number.isdigit() and int(number) < count:
                    # ptxas takes %r01 for %r1.
                    plain = f"{prefix}{int(number)}"
                    return scope.names.get(plain) or self._add(scope, plain, type_name)
        return None

    def label(self, name: str, place: Place) -> str:
        """Return the unique name of the label that is meant at a place, once all are known.

        Raises PtxError where there is none.
        """
        for scope in reversed(place):
            if name in scope.labels:
                return scope.prefix + name
        raise PtxError(f"no label {name}")

    def _add(self, scope: _Scope, name: str, type_name: str) -> Register:
        register = Register(self._unique(scope, name), type_name)
        scope.names[name] = register
        self.function.registers[register.key] = type_name
        return register

    def _require_new(self, name: str) -> None:
        scope = self._open[-1]
        if name in scope.names or name in scope.labels:
            raise PtxError(f"{name} is declared twice")

    def _unique(self, scope: _Scope, name: str) -> str:
        return f"{self.function.name}|{scope.prefix}{name}"
