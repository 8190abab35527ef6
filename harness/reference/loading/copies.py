"""Copies of a model whose functions mean the copy: a hook that keeps what a layer answers, say.

A case runs a copy of the model. `copy.deepcopy` takes functions as they are, and what those close
over would stay the original: its numbers, its dictionary of features.
"""

from __future__ import annotations

import copy
import functools
import traceback
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

_COPY = "__deepcopy__"


def with_copied_closures(model: torch.nn.Module) -> None:
    """Have functions of its file that a model holds be copied with what they close over of it."""
    own, file = vars(model), type(model).__module__

    def copied(memo: dict[int, Any]) -> torch.nn.Module:
        del own[_COPY]
        try:
            held = [*_held(own.values(), file)]  # Kept: the memo tells objects by their numbers.
            functions = {
                id(each): each for each in held
                if isinstance(each, types.FunctionType) and _means_its_own(each, file)
            }  # fmt: skip
            # They may close over each other: all are there before any is filled.
            memo |= {number: _empty(each) for number, each in functions.items()}
            memo |= {id(each): each for each in held if isinstance(each, types.ModuleType)}
            made: torch.nn.Module = copy.deepcopy(model, memo)
            for number, function in functions.items():
                _fill(memo[number], function, memo)
        finally:
            own[_COPY] = copied
        with_copied_closures(made)
        return made

    own[_COPY] = copied


def is_uncopied(error: BaseException) -> bool:
    """Say whether an error comes from a model that cannot be copied."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(each.filename == copy.__file__ and each.name == "deepcopy" for each in frames)


def _held(values: Iterable[Any], file: str) -> Iterator[Any]:
    """Yield all that is reached from values as `copy.deepcopy` reaches it, each once, and what
    functions of a file, which is told by its module's name, close over."""
    seen: dict[int, Any] = {}
    left = [*values]
    while left:
        value = left.pop()
        if id(value) not in seen and not isinstance(value, torch.Tensor | str | int | float):
            seen[id(value)] = value
            left += _parts_of(value, file)
            yield value


def _parts_of(value: Any, file: str) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return _closed_over(value) if value.__module__ == file else []
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    is_its_own = isinstance(value, torch.nn.Module) or type(value).__module__ == file
    return [*vars(value).values()] if is_its_own and hasattr(value, "__dict__") else []


def _closed_over(function: types.FunctionType) -> list[Any]:
    """Return what a function has from where it was made."""
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # Nothing is in it yet.
            continue
    return found


def _means_its_own(function: types.FunctionType, file: str) -> bool:
    """Say whether a copy of a model has one of its own of what a function closes over."""
    kinds = torch.nn.Module, torch.Tensor, dict, list, set
    closed_over = _closed_over(function)
    return function.__module__ == file and any(
        isinstance(each, kinds) for each in (*closed_over, *_held(closed_over, file))
    )


def _empty(function: types.FunctionType) -> types.FunctionType:
    """Return a function of the same code that closes over nothing yet."""
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, cells or None
    )
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__doc__ = function.__qualname__, function.__doc__
    return made


def _fill(made: types.FunctionType, function: types.FunctionType, memo: dict[int, Any]) -> None:
    """Have a copied function close over copies, as far as there are any."""

    def copied(value: Any) -> Any:
        try:
            return copy.deepcopy(value, memo)
        except TypeError:  # A lock, a generator.
            return value

    for cell, source in zip(made.__closure__ or (), function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = copied(source.cell_contents)
        except ValueError:  # Nothing is in it yet.
            continue
    made.__defaults__ = copied(function.__defaults__)
    made.__kwdefaults__ = copied(function.__kwdefaults__)
