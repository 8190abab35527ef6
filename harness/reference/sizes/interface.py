"""Runs inside the reference child: where a model's caller finds what `launch` takes and gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..loading.model import Instance
from .variant import Variant


def interface_of(full: Variant) -> dict[str, Any]:
    """Return the JSON form of a `TaskInterface` (task/interface.py)."""
    instance, reference = full.instance, full.reference
    names = iter(instance.input_names)
    if full.faked:
        with FakeTensorMode(allow_non_fake_inputs=True):
            given = reference.instance(seed=0)
            answer = reference.answer(given.model, given.arguments)
    else:
        answer = reference.answer(instance.model, instance.arguments)
    places = iter(range(len(instance.input_names) + 1024))
    return {
        "forward": instance.model.forward.__qualname__,
        "arguments": [*_arguments(instance, names)],
        "outputs": _answer(answer, places),
        "qualified": {name: path for path, name in instance.qualified.items()},
        "unregistered": sorted(_unregistered(instance.model)),
    }


def _arguments(instance: Instance, names: Iterator[str | None]) -> Iterator[dict[str, Any]]:
    drawn = instance.draws
    for each in instance.arguments[: len(instance.arguments) - len(drawn)]:
        yield _argument(each, names)
    for name in drawn:
        yield {"kind": "drawn", "name": name}


def _argument(value: Any, names: Iterator[str | None]) -> dict[str, Any]:
    if isinstance(value, list | tuple):
        return {"kind": "list", "items": [_argument(each, names) for each in value]}
    if isinstance(value, dict):
        items = [_argument(each, names) for each in value.values()]
        return {"kind": "dict", "keys": [repr(key) for key in value], "items": items}
    name = next(names)
    if isinstance(value, torch.Tensor):
        return {"kind": "tensor", "name": name}
    return {"kind": "value", "name": _text(value)}


def _text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _answer(value: Any, places: Iterator[int]) -> dict[str, Any]:
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"kind": kind, "items": [_answer(each, places) for each in value]}
    if isinstance(value, dict):
        items = [_answer(each, places) for each in value.values()]
        return {"kind": "dict", "keys": [repr(key) for key in value], "items": items}
    if value is None:
        return {"kind": "value", "name": "None"}
    return {"kind": "tensor", "name": f"out{next(places)}"}


def _unregistered(model: torch.nn.Module) -> Iterator[str]:
    """Yield the paths of buffers that a state dictionary leaves out: plain attributes maybe."""
    for path, module in model.named_modules():
        for name in module._non_persistent_buffers_set:
            yield f"{path}.{name}".lstrip(".")
