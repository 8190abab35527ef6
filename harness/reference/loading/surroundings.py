"""What a reference's file finds around it while its code runs: as much as its author had, no more.

A model is answered as it is written: what compiles it changes no answer, and takes minutes. What is
asked for on a GPU lies where answers are made. The file's default type is the file's alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MOVES = {torch.Tensor.cuda: torch.Tensor.cpu}
"""What would take a tensor to a GPU, and what is called in its place."""


class Surroundings:
    """Entered whenever code of a file runs.

    Args:
        path: of the file, all that it is told of its command line.
        source: its text.
        device: where its answers are made.
    """

    def __init__(self, path: str, source: str, device: torch.device) -> None:
        self._path = path
        self._for_gpu = device.type == "cpu" and "cuda" in source
        self._dtype = torch.get_default_dtype()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give the file what it expects to find; all is as before afterwards."""
        dtype, arguments = torch.get_default_dtype(), sys.argv
        replaced = [*self._replaced()]
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
        for owner, name, stand_in in replaced:
            setattr(owner, name, stand_in)
        sys.argv = [self._path]
        torch.set_default_dtype(self._dtype)
        try:
            with _OnCpu() if self._for_gpu else nullcontext():
                yield
        finally:
            self._dtype = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            sys.argv = arguments
            for owner, name, own in kept:
                setattr(owner, name, own)

    @contextmanager
    def with_type(self, dtype: torch.dtype) -> Iterator[None]:
        """Have the file find another default type than its own."""
        own, self._dtype = self._dtype, dtype
        try:
            yield
        finally:
            self._dtype = own

    def _replaced(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield (owner, name, what stands there) of functions that do otherwise for the file."""
        yield torch, "compile", _as_it_is
        yield torch.nn.Module, "compile", _nothing
        yield torch.jit, "script", _as_it_is
        yield torch.jit, "freeze", _as_it_is
        yield torch.jit, "optimize_for_inference", _as_it_is
        yield torch.autocast, "__init__", _no_autocast
        if self._for_gpu:
            yield torch, "set_default_device", _nothing
            yield torch.cuda, "synchronize", _nothing
            yield torch.cuda, "set_device", _nothing
            yield torch.cuda, "empty_cache", _nothing


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Makes on the CPU what is asked for on a GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _MOVES:
            return _MOVES[function](args[0])
        args = tuple(map(_moved, args))
        return function(*args, **{name: _moved(each) for name, each in (kwargs or {}).items()})


def _moved(given: Any) -> Any:
    """Return the CPU in place of a GPU, by whichever way it is named, and all else as it is."""
    if isinstance(given, torch.device) and given.type == "cuda":
        return torch.device("cpu")
    if isinstance(given, str) and given.partition(":")[0] == "cuda":
        return "cpu"
    return given


def _as_it_is(model: Any = None, *more: Any, **options: Any) -> Any:
    """Stand for what compiles, as a function or as a decorator with or without options."""
    if model is None:
        return _itself
    return model


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _nothing(*given: Any, **named: Any) -> None:
    """Do nothing in place of what changes no answer."""


_begin_autocast = torch.autocast.__init__


def _no_autocast(
    self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *more: Any, **named: Any
) -> None:
    """Refuse what casts other operations on one kind of device than on another."""
    if enabled:
        raise RuntimeError(
            f"torch.autocast({device_type!r}) casts other operations on a GPU than on the CPU: "
            "write the casts into forward(), or read the task with --dtype bf16 or --dtype fp16"
        )
    _begin_autocast(self, device_type, dtype, enabled, *more, **named)
