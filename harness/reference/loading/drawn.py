"""Random numbers that forward() draws, given to it instead: only then is there one right answer.

They become inputs of `launch` behind those of get_inputs(), each named by the function that draws
it and its line. The function is not asked again: it returns what is given.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MAKING = frozenset(
    getattr(torch, name)
    for name in ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like")
)
_FILLING = frozenset(
    getattr(torch.Tensor, name)
    for name in ("normal_", "uniform_", "exponential_", "bernoulli_", "random_", "log_normal_",
                 "cauchy_", "geometric_")
)  # fmt: skip
_NAMES = frozenset(each.__name__ for each in _MAKING | _FILLING) | {"gumbel_softmax"}
"""What stands in a file that draws; the last draws in PyTorch's own code."""
_ELSEWHERE = ("get_inputs", "get_init_inputs", "__init__")

NAMED = "_kernelblaster_draws"
"""Attribute of a model's class that names what its forward() would draw; no reference's own."""
MOST = 64
"""A reference that draws more often, in a loop mostly, is refused as a random one."""


def may_draw(source: str) -> bool:
    """Say whether a file calls what draws anywhere but where inputs and the model are made."""
    return any(map(_calls_one, _outside(ast.parse(source))))


def _outside(tree: ast.AST) -> list[ast.AST]:
    found = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef) and child.name in _ELSEWHERE:
            continue
        found += [child, *_outside(child)]
    return found


def _calls_one(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _NAMES


class _AtDraws(TorchFunctionMode):  # type: ignore[misc]
    """Has what is drawn under it answered by `draw`; all else is done as it is."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if function in _MADE_OF_OTHERS:
            with self:
                return _MADE_OF_OTHERS[function](*args, **named)
        if not _is_a_draw(function, args, named):
            return function(*args, **named)
        return self.draw(function, args, named)

    def draw(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """Return what a function is to have drawn."""
        raise NotImplementedError


class Draws(_AtDraws):
    """Notes what is drawn under it, as (function, line of the file, numbers)."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.found: list[tuple[str, int, torch.Tensor]] = []
        self._path = path

    def draw(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """Draw as PyTorch does, and note it."""
        drawn: torch.Tensor = function(*args, **kwargs)
        name = function.__name__.rstrip("_")
        self.found.append((name, self._line(), drawn.detach().clone()))
        return drawn

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else 0


class _Given(_AtDraws):
    """Has what draws return what is given, in order."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._given = iter(given)

    def draw(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """Return what is given, in the place of what is filled."""
        given = next(self._given, None)
        if given is None:
            raise RuntimeError("forward() draws more random numbers than the first time")
        return args[0].copy_(given) if function in _FILLING else given


def _is_a_draw(function: Any, args: Any, kwargs: Any) -> bool:
    """Say whether a call draws numbers whose distribution hangs on no tensor."""
    if function in _MAKING:
        return True
    options = (*args[1:], *kwargs.values())
    return function in _FILLING and not any(map(torch.is_tensor, options))


def _gumbel_softmax(
    logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 0.0, dim: int = -1
) -> torch.Tensor:
    """Stand for PyTorch's: what that calls on its way is seen by no mode."""
    drawn = torch.empty_like(logits, memory_format=torch.legacy_contiguous_format).exponential_()
    soft = ((logits - drawn.log()) / tau).softmax(dim)
    if not hard:
        return soft
    places = soft.max(dim, keepdim=True)[1]
    chosen = torch.zeros_like(logits, memory_format=torch.legacy_contiguous_format)
    return chosen.scatter_(dim, places, 1.0) - soft.detach() + soft


_MADE_OF_OTHERS = {torch.nn.functional.gumbel_softmax: _gumbel_softmax}


def drawn_of(
    model: torch.nn.Module, arguments: Sequence[Any], path: str
) -> list[tuple[str, int, torch.Tensor]]:
    """Return what forward() draws for these arguments; neither they nor the model are changed.

    Nothing where it draws more often than MOST times. Raises whatever forward() raises.
    """
    with Draws(path) as draws, torch.no_grad():
        copy.deepcopy(model)(*copy.deepcopy(list(arguments)))
    return draws.found if len(draws.found) <= MOST else []


def names_of(drawn: Sequence[tuple[str, int, torch.Tensor]]) -> list[str]:
    """Return what each is called, all different."""
    names: list[str] = []
    for function, line, _ in drawn:
        name = f"{function}_line{line}"
        several = sum(each == name or each.startswith(f"{name}_") for each in names)
        names.append(f"{name}_{several + 1}" if several else name)
    return names


class _GivenByName:
    """Has what draws return what is given, in order, without a mode: one is asked at every
    operation, and what is timed would be its time too.

    Args:
        names: of what is drawn, as `names_of` has them.
        given: the numbers.

    Raises RuntimeError where not all are asked for: the file has a name of its own for what draws.
    """

    def __init__(self, names: Sequence[str], given: Sequence[torch.Tensor]) -> None:
        self._draws, self._left = _Given(given), len(given)
        drawing = {name.rpartition("_line")[0] for name in names}
        self._replaced = [
            (owner, function) for owner, functions in ((torch, _MAKING), (torch.Tensor, _FILLING))
            for function in functions if function.__name__.rstrip("_") in drawing
        ]  # fmt: skip

    def __enter__(self) -> None:
        for owner, function in self._replaced:
            setattr(owner, function.__name__, self._standing_for(function))

    def __exit__(self, kind: Any, *error: Any) -> None:
        for owner, function in self._replaced:
            if owner is torch:
                setattr(owner, function.__name__, function)
            else:
                delattr(owner, function.__name__)  # What it inherits is found again.
        if kind is None and self._left:
            raise RuntimeError("forward() draws under another name")

    def _standing_for(self, function: Any) -> Callable[..., Any]:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if not _is_a_draw(function, args, kwargs):
                return function(*args, **kwargs)
            self._left -= 1
            return self._draws.draw(function, args, kwargs)

        return stand_in


def without_mode(model: torch.nn.Module, arguments: Sequence[Any]) -> torch.nn.Module:
    """Return a model whose draws were taken as one, of the same tensors, that is as fast as the
    file's; the model itself where its draws cannot be had by name. It is called once.
    """
    names = getattr(model, NAMED, ())
    if not names:
        return model
    plain = copy.copy(model)
    plain.__class__ = type(model).__mro__[1]
    take_draws(plain, len(arguments) - len(names), names, by_name=True)
    try:
        plain(*arguments)
    except Exception:  # It is the file's code: the model raises it again, if it does too.
        return model
    return plain


def take_draws(
    model: torch.nn.Module, count: int, names: Sequence[str], *, by_name: bool = False
) -> None:
    """Have forward() take `count` arguments, and then what it would draw, under these names.

    `by_name` says that no mode is to answer what draws; see `_GivenByName`.
    """
    own = type(model)

    def forward(self: Any, *arguments: Any) -> Any:
        given = arguments[count:]
        with _GivenByName(names, given) if by_name else _Given(given):
            return own.forward(self, *arguments[:count])

    kind = inspect.Parameter.POSITIONAL_ONLY
    given = [inspect.Parameter(name, kind) for name in ("self", *_given_names(own, count), *names)]
    forward.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    forward.__qualname__ = own.forward.__qualname__
    model.__class__ = type(own.__name__, (own,), {"forward": forward, NAMED: tuple(names)})


def _given_names(model: type, count: int) -> list[str]:
    names: list[str] = []
    for each in [*inspect.signature(model.forward).parameters.values()][1:]:  # type: ignore[attr-defined]
        if each.kind is each.VAR_POSITIONAL:
            names += [f"{each.name}_{k}" for k in range(count - len(names))]
        elif each.kind is not each.VAR_KEYWORD:
            names.append(each.name)
    return names[:count]
