"""A reference at given sizes: the tensors that `launch` would get, and what answering costs.

Shapes come from fake tensors, which cost neither memory nor time; a reference that looks at values
is really run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ...records.readings import Reading
from ...records.variations import Variation
from ..loading.model import Instance, Reference, ReferenceFault, specs
from .small_variant import Cost

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


LEAST_NORMED = 4
"""Elements of a group whose norm tells what is in them."""


class Variant:
    """The reference at given sizes. Raises ReferenceFault where it does not do there."""

    def __init__(
        self,
        source: str,
        path: str,
        dimensions: Mapping[str, int],
        reading: Reading,
        faked: bool | None = None,
    ) -> None:
        """Run it; `faked` says with which tensors, by default with fake ones if that does."""
        self.dimensions = dict(dimensions)
        self._file = source, path, reading
        self.faked = True if faked is None else faked
        try:
            self._run()
        except ReferenceFault:
            if faked is not None:
                raise
            self.faked = False
            self._run()

    def is_like(self, full: Variant, loops_alike: bool = True) -> bool:
        """Say whether this is the same task at other sizes.

        The same tensors with as many axes, and no axis of one element that has more at full size:
        its norm, maximum or softmax would be another thing. As many operations too, unless
        `loops_alike` says that a loop may be run another number of times.
        """
        mine, its = self.tensors, full.tensors
        if len(mine) != len(its) or self.instance.scalars.keys() != full.instance.scalars.keys():
            return False
        for small, large in zip(mine, its, strict=True):
            if any(small[key] != large[key] for key in ("name", "role", "dtype")):
                return False
            if not _same_axes(small["shape"], large["shape"]):
                return False
        if len(self.shapes) != len(full.shapes):
            return not loops_alike
        return all(map(_same_axes, self.shapes, full.shapes))

    def described(
        self, name: str, variation: Variation, names: Mapping[str, int]
    ) -> dict[str, Any]:
        """Return the JSON form of a TaskVariant.

        Args:
            name: of the variant.
            variation: of the task: what is not read is left out.
            names: sizes that are named, with the values as written.
        """
        constants, unread = set(variation.constants), set(variation.unread)
        return {
            "name": name,
            "dimensions": {**names, **self.dimensions},
            "tensors": [
                each | {"constant": each["name"] in constants}
                for each in self.tensors if each["name"] not in unread
            ],
            "scalars": self.instance.scalars,
            "work": self.cost.work,
        }  # fmt: skip

    def anew(self) -> Reference:
        """Return the reference as nothing has run it: what it keeps for itself (a cache, a table)
        belongs to the kind of tensors that it was run with. Raises ReferenceFault."""
        source, path, reading = self._file
        return Reference(source, path, self.dimensions, reading=reading)

    def leads_astray(self) -> bool:
        """Say whether integers lead out of a table here: fake tensors hold none to look up with.

        It is really run, where it has integers at all.
        """
        if not self.faked or all("float" in tensor["dtype"] for tensor in self.tensors):
            return False
        try:
            reference = self.anew()
            instance = reference.instance(seed=0)
            reference.outputs(instance.model, instance.arguments)
        except ReferenceFault:
            return True
        return False

    def _run(self) -> None:
        self.reference = self.anew()
        place: AbstractContextManager[Any] = nullcontext()
        if self.faked:
            place = FakeTensorMode(allow_non_fake_inputs=True)
        counted, written = FlopCounterMode(display=False), _Written()
        with place:
            self.instance: Instance = self.reference.instance(seed=0)
            inputs = self.instance.inputs
            before = {name: tensor._version for name, tensor in inputs.items()}
            with counted, written, _Recurrent(written) if self.faked else nullcontext():
                outputs = self.reference.outputs(self.instance.model, self.instance.arguments)
        self.changed = [name for name, own in inputs.items() if own._version != before[name]]
        """Inputs that forward() changes."""
        self.tensors = specs(self.instance, outputs)
        self.shapes = written.shapes
        elements = {"given": 0, "kept": 0}
        for tensor in self.tensors:
            role = "given" if tensor["role"] in ("input", "output") else "kept"
            elements[role] += math.prod(tensor["shape"])
        self.cost = Cost(**elements, work=written.elements + counted.get_total_flops() // 2)


_SORTS = (torch.ops.aten.sort, torch.ops.aten.topk, torch.ops.aten.argsort)


class _Written(TorchDispatchMode):  # type: ignore[misc]
    """Notes the shapes of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.elements = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket is torch.ops.aten.native_group_norm:
            # No result is of a group's shape: a norm of one element is another thing here too, and
            # one of two tells little but which is larger.
            _, _, _, _, channels, elements, groups, _ = args
            in_group = int(channels) // int(groups) * int(elements)
            self.shapes.append((1 if in_group < LEAST_NORMED else in_group,))
        for each in result if isinstance(result, list | tuple) else (result,):
            if isinstance(each, torch.Tensor):
                shape = tuple(int(size) for size in each.shape)
                self.shapes.append(shape)
                self.elements += math.prod(shape)
        if function.overloadpacket in _SORTS and args[0].dim():
            # A network of comparisons has half so many steps.
            self.elements += args[0].numel() * int(args[0].numel()).bit_length() ** 2 // 2
        return result


class _Recurrent(TorchFunctionMode):  # type: ignore[misc]
    """Answers for recurrent layers at once: fake tensors would take every step of every layer."""

    def __init__(self, written: _Written) -> None:
        super().__init__()
        self._written = written

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name not in _RECURRENT or len(args) != 9 or isinstance(args[2], torch.Tensor):
            return function(*args, **(kwargs or {}))
        steps = math.prod(args[0].shape[:-1])
        self._written.elements += steps * sum(weight.numel() for weight in args[2])
        return _recurrent_shapes(*args)


@contextmanager
def recurrent_at_once() -> Iterator[None]:
    """Have torch.export find the shapes of recurrent layers at once: it would take every step."""
    operators = [getattr(torch.ops.aten, name).input for name in _RECURRENT]
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    before = [{key: each.py_kernels.get(key) for key in keys} for each in operators]
    for each in operators:
        _set_kernels(each, dict.fromkeys(keys, _recurrent_shapes))
    try:
        yield
    finally:
        for each, own in zip(operators, before, strict=True):
            _set_kernels(each, own)


def _set_kernels(operator: Any, kernels: Mapping[DispatchKey, Any]) -> None:
    for key, kernel in kernels.items():
        if kernel is None:
            operator.py_kernels.pop(key, None)
        else:
            operator.py_kernels[key] = kernel
    operator._dispatch_cache.clear()


def _recurrent_shapes(given: Any, state: Any, weights: Any, *options: Any) -> tuple[Any, ...]:
    """Return tensors of the shapes that a recurrent layer answers: all steps, the last states."""
    states = tuple(state) if isinstance(state, list | tuple) else (state,)
    both_ways = options[-2]
    width = states[0].shape[-1] * (2 if both_ways else 1)
    answer = given.new_empty((*given.shape[:-1], width))
    return answer, *(each.new_empty(each.shape) for each in states)


def _same_axes(small: Any, large: Any) -> bool:
    return len(small) == len(large) and all(
        (mine == 1) == (its == 1) for mine, its in zip(small, large, strict=True)
    )
