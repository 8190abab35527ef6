"""Copies of a model whose functions mean the copy: a hook that keeps what a layer answers, say.

A case runs a copy of the model. `copy.deepcopy` takes functions as they are, and what those close
over would stay the original: its numbers, its dictionary of features.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import traceback
import types
from collections.abc import Iterator
from typing import Any

import torch

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")

# A module of Python is the same in each copy.
copyreg.pickle(types.ModuleType, lambda module: module.__name__)


def with_copied_closures(model: torch.nn.Module) -> None:
    """Have functions that the modules of a model hold be copied with what they close over."""
    seen: set[int] = set()
    for module in model.modules():
        own = vars(module)
        for name in _HOOKS:
            _hold(own[name], seen)
        for name in [name for name in own if not name.startswith("_")]:
            own[name] = _held(own[name], seen)


def is_uncopied(error: BaseException) -> bool:
    """Say whether an error comes from a model that cannot be copied."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(each.filename == copy.__file__ and each.name == "deepcopy" for each in frames)


class Closure:
    """Calls a function; a copy of it calls one that closes over copies."""

    def __init__(self, function: types.FunctionType) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call it."""
        return self._function(*given, **named)

    def __deepcopy__(self, memo: dict[int, Any]) -> Closure:
        return Closure(_copied(self._function, memo))


def _held(value: Any, seen: set[int]) -> Any:
    if isinstance(value, types.FunctionType):
        return Closure(value) if _is_own(value) else value
    if isinstance(value, dict | list):
        _hold(value, seen)
    return value


def _hold(holder: dict[Any, Any] | list[Any], seen: set[int]) -> None:
    """Replace functions in what remains the same object: functions may close over that too."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    items = list(holder.items() if isinstance(holder, dict) else enumerate(holder))
    for key, value in items:
        held = _held(value, seen)
        if held is not value:
            holder[key] = held


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function has from where it was made."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # Nothing is in it yet.
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _is_own(value: Any, *within: Any) -> bool:
    """Say whether a copy of a model has one of its own of this; a function is `within` others."""
    if not isinstance(value, types.FunctionType):
        kinds = (torch.nn.Module, torch.Tensor, dict, list, set)
        return isinstance(value, kinds)
    if any(value is each for each in within):
        return False
    return any(_is_own(each, value, *within) for each in _closed_over(value))


def _copied(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    if id(function) in memo:
        found: types.FunctionType = memo[id(function)]
        return found
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, cells or None
    )
    memo[id(function)] = made  # It may close over itself.

    def own(value: Any) -> Any:
        if value is function:
            return made
        if not _is_own(value):
            return value
        is_function = isinstance(value, types.FunctionType)
        return _copied(value, memo) if is_function else copy.deepcopy(value, memo)

    for cell, source in zip(cells, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = own(source.cell_contents)
        except ValueError:  # Nothing is in it yet.
            continue
    made.__defaults__ = tuple(map(own, function.__defaults__)) if function.__defaults__ else None
    named = function.__kwdefaults__
    made.__kwdefaults__ = {name: own(each) for name, each in named.items()} if named else None
    made.__dict__.update(function.__dict__)
    made.__qualname__ = function.__qualname__
    return made
