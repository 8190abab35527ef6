"""Carries out the kernels of this package: machine code and a list of launches, no compiler.

For each shape that was verified there are a cubin, and what launch() puts on the GPU as JSON: both
are what was verified. The CUDA driver loads the one and is given the other, on PyTorch's current
stream. The file imports nothing of the program that wrote it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_VARIABLE, _WORKSPACE = "variable ", "workspace"
_MAX_DYNAMIC_SHARED = 8
_HOST, _DEVICE = 1, 2
_ALIGNMENT = 512


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("number", ctypes.c_uint), ("gap", ctypes.c_uint), ("value", ctypes.c_uint * 16)]


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class _Rows(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        field
        for side in ("source", "target")
        for field in (
            (f"{side}_x", ctypes.c_size_t), (f"{side}_y", ctypes.c_size_t),
            (f"{side}_type", ctypes.c_uint), (f"{side}_host", ctypes.c_void_p),
            (f"{side}_device", ctypes.c_uint64), (f"{side}_array", ctypes.c_void_p),
            (f"{side}_pitch", ctypes.c_size_t),
        )
    ] + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """One tensor as a kernel was verified with it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """The kernel at one set of shapes."""

    outputs: tuple[Expected, ...]
    given: tuple[Expected, ...]
    image: Path
    plan: Mapping[str, Any]


class Operator:
    """The kernels of one package. Every refusal is a ValueError of one sentence."""

    def __init__(self, folder: Path) -> None:
        """Read kernels.json: what there is, and for which GPU."""
        described = json.loads((folder / "kernels.json").read_text(encoding="utf-8"))
        self.name: str = described["name"]
        self.gpu: str = described["gpu"]
        self.capability: tuple[int, int] = tuple(described["capability"])
        self.variants = tuple(_variant(folder, each) for each in described["variants"])
        self._loading = threading.Lock()
        self._loaded: dict[tuple[int, int], Callable[..., None]] = {}

    def outputs(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return tensors that hold nothing, as the operator's answers to these are."""
        variant = self.variants[self._fitting(given)]
        return [
            given[0].new_empty(each.shape, dtype=each.dtype) for each in variant.outputs
        ]

    def __call__(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the kernel on PyTorch's current stream."""
        number = self._fitting(given)
        device = given[0].device
        if device.type != "cuda":
            raise ValueError(f"{self.name}: runs on CUDA devices, not on {device}")
        variant = self.variants[number]
        with torch.cuda.device(device):
            run = self._run_of(number, device.index)
            ready = [_ready(each) for each in given]
            outputs = self.outputs(given)
            size = variant.plan["workspace_bytes"]
            workspace = given[0].new_empty((size,), dtype=torch.uint8) if size else None
            base = {
                spec.name: tensor.data_ptr()
                for spec, tensor in zip(
                    (*variant.outputs, *variant.given), (*outputs, *ready), strict=True
                )
            }
            base[_WORKSPACE] = 0 if workspace is None else workspace.data_ptr()
            run(base, torch.cuda.current_stream().cuda_stream)
        return outputs

    def _fitting(self, given: Sequence[torch.Tensor]) -> int:
        """Return the number of the variant that these tensors are for."""
        first = self.variants[0].given
        if len(given) != len(first):
            raise ValueError(f"{self.name}: takes {len(first)} tensors, not {len(given)}")
        for tensor, spec in zip(given, first, strict=True):
            if tensor.device.type not in ("cuda", "meta"):
                raise ValueError(
                    f"{self.name}: {spec.name} is on {tensor.device}, and the kernel runs on CUDA "
                    "devices"
                )
            if tensor.dtype != spec.dtype or tensor.device != given[0].device:
                where = "" if tensor.device == given[0].device else f" on {tensor.device}"
                raise ValueError(
                    f"{self.name}: {spec.name} is {tensor.dtype}{where}, and the kernel was "
                    f"verified for {spec.dtype} on one device"
                )
        for number, variant in enumerate(self.variants):
            if all(
                tuple(tensor.shape) == spec.shape
                for tensor, spec in zip(given, variant.given, strict=True)
            ):
                return number
        shapes = ", ".join(
            f"{spec.name} {list(tensor.shape)}" for tensor, spec in zip(given, first, strict=True)
        )
        known = " or ".join(
            ", ".join(f"{spec.name} {list(spec.shape)}" for spec in variant.given)
            for variant in self.variants
        )
        raise ValueError(f"{self.name}: was not verified for {shapes}; it was for {known}")

    def _run_of(self, number: int, device: int) -> Callable[..., None]:
        """Return what enqueues a variant's steps, its machine code loaded on first use."""
        with self._loading:
            if (number, device) not in self._loaded:
                found = torch.cuda.get_device_properties(device)
                if (found.major, found.minor) != self.capability or not is_called(
                    found.name, self.gpu
                ):
                    raise ValueError(
                        f"{self.name}: was verified on {self.gpu}, and this GPU is {found.name}"
                    )
                self._loaded[number, device] = _load(self.variants[number])
            return self._loaded[number, device]


def is_called(name: str, wanted: str) -> bool:
    """Say whether a driver's name of a GPU holds another, whole words alone: a GH200 is no H200."""
    words, asked = (re.findall(r"[A-Z0-9]+", each.upper()) for each in (name, wanted))
    return any(
        "".join(words[start:end]) == "".join(asked)
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    )


def _variant(folder: Path, described: Mapping[str, Any]) -> Variant:
    outputs, given = (
        tuple(
            Expected(each["name"], getattr(torch, each["dtype"]), tuple(each["shape"]))
            for each in described[role]
        )
        for role in ("outputs", "given")
    )
    return Variant(outputs, given, folder / described["image"], described["plan"])


def _ready(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the kernel was verified with it: contiguous, its first byte aligned."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    if code := int(getattr(_driver(), name)(*arguments)):
        said = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(said))
        raise RuntimeError(f"{name}: {(said.value or b'unknown').decode()}")


def _load(variant: Variant) -> Callable[..., None]:
    """Load a variant on the current device and return what enqueues its steps."""
    module = ctypes.c_void_p()
    _call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(variant.image.read_bytes()))
    variables: dict[str, int] = {}
    for buffer in {each for step in variant.plan["steps"] for each in _buffers(step)}:
        if buffer.startswith(_VARIABLE):
            address, size = ctypes.c_uint64(), ctypes.c_size_t()
            name = buffer.removeprefix(_VARIABLE).encode()
            _call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, name)
            variables[buffer] = address.value
    shared = variant.plan["dynamic_shared"]
    steps = [
        _launch(step, module, shared.get(step["kernel"], 0)) if "kernel" in step
        else functools.partial(_transfer, step)
        for step in variant.plan["steps"]
    ]  # fmt: skip

    def run(base: Mapping[str, int], stream: int) -> None:
        places = {**base, **variables}
        for step in steps:
            step(places, stream)

    return run


def _launch(
    step: Mapping[str, Any], module: ctypes.c_void_p, dynamic_shared: int
) -> Callable[[Mapping[str, int], int], None]:
    function = ctypes.c_void_p()
    _call("cuModuleGetFunction", ctypes.byref(function), module, step["kernel"].encode())
    if dynamic_shared:
        _call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, dynamic_shared)
    given = step["attributes"]
    attributes = (_Attribute * max(1, len(given)))()
    for each, (number, words) in zip(attributes, given, strict=False):
        each.number, each.value[:3] = number, words
    configuration = _Configuration(
        shared_bytes=step["shared_bytes"], attributes=attributes, attribute_count=len(given)
    )
    configuration.grid[:], configuration.block[:] = step["grid"], step["block"]

    def run(base: Mapping[str, int], stream: int) -> None:
        # Sixteen bytes is as far as any argument's alignment goes.
        contents = [_content(each, base) for each in step["arguments"]]
        held = [ctypes.create_string_buffer(each, max(16, len(each))) for each in contents]
        arguments = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        own = _Configuration.from_buffer_copy(configuration)
        own.stream = stream
        _call("cuLaunchKernelEx", ctypes.byref(own), function, arguments, None)

    return run


def _transfer(step: Mapping[str, Any], base: Mapping[str, int], stream: int) -> None:
    """Enqueue a copy or fill of rows."""
    on, target = ctypes.c_void_p(stream), ctypes.c_uint64(_address(step["target"], base))
    source = ctypes.c_uint64(_address(step["source"], base) if step["source"] else 0)
    width, height = ctypes.c_size_t(step["width"]), ctypes.c_size_t(step["height"])
    content, byte = _content(step["content"], base), ctypes.c_ubyte(step["value"])
    one = step["height"] == 1
    if not step["copy"] and one:
        _call("cuMemsetD8Async", target, byte, width, on)
    elif not step["copy"]:
        pitch = ctypes.c_size_t(step["target_pitch"])
        _call("cuMemsetD2D8Async", target, pitch, byte, width, height, on)
    elif one and step["source"]:
        _call("cuMemcpyDtoDAsync_v2", target, source, width, on)
    elif one:
        _call("cuMemcpyHtoDAsync_v2", target, ctypes.c_char_p(content), width, on)
    else:
        rows = _Rows(
            target_type=_DEVICE, target_device=target, target_pitch=step["target_pitch"],
            source_type=_DEVICE, source_device=source, source_pitch=step["source_pitch"],
            width=width, height=height,
        )  # fmt: skip
        held = ctypes.create_string_buffer(content, max(1, len(content)))
        if not step["source"]:
            rows.source_type, rows.source_host = _HOST, ctypes.addressof(held)
            rows.source_pitch = width
        _call("cuMemcpy2DAsync_v2", ctypes.byref(rows), on)


def _buffers(step: Mapping[str, Any]) -> list[str]:
    contents = step["arguments"] if "kernel" in step else [step["content"]]
    places = [place for content in contents for _, place in content["addresses"]]
    places += [step[side] for side in ("target", "source") if step.get(side)]
    return [place["buffer"] for place in places]


def _address(place: Mapping[str, Any], base: Mapping[str, int]) -> int:
    return base[place["buffer"]] + int(place["offset"])


def _content(content: Mapping[str, Any], base: Mapping[str, int]) -> bytes:
    data = bytearray.fromhex(content["hexadecimal"])
    for start, place in content["addresses"]:
        data[start : start + 8] = (_address(place, base) & (1 << 64) - 1).to_bytes(8, "little")
    return bytes(data)
