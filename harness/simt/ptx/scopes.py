"""The names of one PTX function: its scopes, what is declared in each, and registers by family."""

from __future__ import annotations

from dataclasses import dataclass, field

from .records import Function, Operand, Register, Symbol, Variable


@dataclass
class _Scope:
    prefix: str
    """Stands before the names of this scope where they have to be unique in the function."""
    names: dict[str, Operand] = field(default_factory=dict)
    families: list[tuple[str, str]] = field(default_factory=list)
    """Prefix and type of registers that were declared by their number: `%r<12>`."""


class Scopes:
    """Gives every register and variable of a function a name that is unique in the module."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._open = [_Scope("")]
        self._opened = 0

    @property
    def are_closed(self) -> bool:
        """Whether the function's own scope has ended too."""
        return not self._open

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
        unique = self._unique(scope, variable.name)
        self.function.variables[unique] = Variable(
            unique, variable.space, variable.size, variable.align, variable.element_bytes,
            variable.initial, variable.relocations,
        )  # fmt: skip
        scope.names[variable.name] = Symbol(unique)

    def add_register(self, name: str, type_name: str) -> None:
        """Add one register to the last scope."""
        scope = self._open[-1]
        scope.names[name] = Register(self._unique(scope, name), type_name)

    def add_family(self, prefix: str, type_name: str) -> None:
        """Add registers named by a prefix and a number to the last scope."""
        self._open[-1].families.append((prefix, type_name))

    def lookup(self, name: str) -> Operand | None:
        """Find a name in the open scopes; members of a register family are made on first use."""
        for scope in reversed(self._open):
            if name in scope.names:
                return scope.names[name]
            for prefix, type_name in scope.families:
                if name.startswith(prefix) and name[len(prefix) :].isdigit():
                    register = Register(self._unique(scope, name), type_name)
                    scope.names[name] = register
                    return register
        return None

    def _unique(self, scope: _Scope, name: str) -> str:
        return f"{self.function.name}|{scope.prefix}{name}"
