"""The CUDA driver, as far as carrying out a plan takes it: modules, and steps on real addresses.

It imports nothing of this package: the program that profilers watch (launch_program.py) loads it
too, by its path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCH, FILL, COPY, COPY_FROM_HOST = 1, 2, 3, 4
_MAX_DYNAMIC_SHARED, _SHARED_CARVEOUT = 8, 9
_ATTRIBUTE_BYTES, _VALUE_AT = 72, 8
"""Of CUlaunchAttribute: a number, a gap, 64 bytes of value."""


class DriverError(Exception):
    """A call of the driver failed."""

    def __init__(self, code: int, name: str, words: str, step: int = -1) -> None:
        super().__init__(f"{words} ({name})")
        self.code, self.step = code, step


@dataclass(frozen=True)
class LaunchStep:
    """A kernel launch with the bytes of its arguments."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    attributes: Sequence[tuple[int, tuple[int, int, int]]]
    arguments: Sequence[bytes]


@dataclass(frozen=True)
class TransferStep:
    """A copy or fill of rows; `source` 0 and `content` empty make it a fill."""

    value: int
    target: int
    target_pitch: int
    source: int
    source_pitch: int
    width: int
    height: int
    content: bytes
    """What is copied from the host, rows adjoining."""


class _Step(ctypes.Structure):
    """replay_step of replay.c."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("attribute_count", ctypes.c_uint),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("target", ctypes.c_uint64),
        ("source", ctypes.c_uint64),
        ("content", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("source_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("value", ctypes.c_uint),
    ]


class Driver:
    """libcuda and replay.c, in a process whose context is current. Raises OSError."""

    def __init__(self, replay: Path) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self.replay = ctypes.CDLL(str(replay))
        self.replay.replay_step_bytes.restype = ctypes.c_uint64
        if self.replay.replay_step_bytes() != ctypes.sizeof(_Step):
            raise OSError(f"{replay} does not match the Python code: delete that file")
        if self.replay.replay_open() != 0:
            raise OSError("this CUDA driver is too old: it lacks cuLaunchKernelEx")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver. Raises DriverError."""
        if code := int(getattr(self._driver, name)(*arguments)):
            raise self.error(code)

    def error(self, code: int, step: int = -1) -> DriverError:
        """Return a driver's error code as an exception."""
        said = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            getattr(self._driver, name)(code, ctypes.byref(text))
            said.append((text.value or b"unknown").decode())
        return DriverError(code, said[0], said[1], step)

    def load(self, image: bytes) -> int:
        """Load a cubin and return its module. Raises DriverError."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Let go of a module; the GPU must have finished with it. Raises DriverError."""
        self.call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: int, name: str, dynamic_shared: int) -> int:
        """Return a kernel that may have so much dynamic shared memory. Raises DriverError."""
        found = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(found), ctypes.c_void_p(module),
                  name.encode())  # fmt: skip
        if dynamic_shared:
            self.call("cuFuncSetAttribute", found, _MAX_DYNAMIC_SHARED, dynamic_shared)
        return int(found.value or 0)

    def share_most(self, function: int, most: bool = True) -> None:
        """Ask that a multiprocessor's memory is shared memory where a kernel runs, or no more so.

        Two kernels that ask for different divisions do not run beside each other there.
        Raises DriverError.
        """
        value = 100 if most else -1
        self.call("cuFuncSetAttribute", ctypes.c_void_p(function), _SHARED_CARVEOUT, value)

    def variable(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a variable. Raises DriverError."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size),
                  ctypes.c_void_p(module), name.encode())  # fmt: skip
        return address.value, size.value


class Steps:
    """Steps prepared for replay.c: cheap to run again and again."""

    def __init__(self, driver: Driver, steps: Sequence[LaunchStep | TransferStep]) -> None:
        self._driver = driver
        self._kept: list[object] = []
        self._array = (_Step * max(1, len(steps)))(*map(self._native, steps))
        self._count = len(steps)
        self._failed, self._first = ctypes.c_int(-1), 0

    def run(
        self,
        stream: int,
        events: ctypes.Array[ctypes.c_void_p] | None = None,
        part: slice = slice(None),
    ) -> int:
        """Enqueue all, or a part, on a stream; returns the driver's first error code, else 0."""
        first, end, _ = part.indices(self._count)
        start = ctypes.byref(self._array, first * ctypes.sizeof(_Step))
        code = int(self._driver.replay.replay_run(
            start, end - first, ctypes.c_void_p(stream), events, ctypes.byref(self._failed)
        ))  # fmt: skip
        self._first = first
        return code

    @property
    def failed_step(self) -> int:
        """The step of the error that `run` returned."""
        return self._first + self._failed.value

    def _native(self, step: LaunchStep | TransferStep) -> _Step:
        if isinstance(step, LaunchStep):
            return self._launch(step)
        found = _Step(
            value=step.value, target=step.target, target_pitch=step.target_pitch,
            source=step.source, source_pitch=step.source_pitch, width=step.width,
            height=step.height, kind=COPY if step.source else FILL,
        )  # fmt: skip
        if step.content:
            found.kind, found.source_pitch = COPY_FROM_HOST, step.width
            found.content = self._keep(ctypes.create_string_buffer(step.content))
        return found

    def _launch(self, step: LaunchStep) -> _Step:
        found = _Step(
            kind=LAUNCH, function=step.function, shared_bytes=step.shared_bytes,
            attribute_count=len(step.attributes),
        )  # fmt: skip
        found.grid[:], found.block[:] = step.grid, step.block
        attributes = bytearray(_ATTRIBUTE_BYTES * len(step.attributes))
        for place, (number, values) in enumerate(step.attributes):
            words = (ctypes.c_uint * 3)(*values)
            start = place * _ATTRIBUTE_BYTES
            attributes[start : start + 4] = number.to_bytes(4, "little")
            attributes[start + _VALUE_AT : start + _VALUE_AT + 12] = bytes(words)
        if step.attributes:
            found.attributes = self._keep(ctypes.create_string_buffer(bytes(attributes)))
        if step.arguments:
            # Sixteen bytes is as far as any argument's alignment goes.
            contents = [self._keep(_aligned(argument)) for argument in step.arguments]
            found.arguments = self._keep((ctypes.c_void_p * len(contents))(*contents))
        return found

    def _keep(self, value: ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_void_p]) -> int:
        self._kept.append(value)
        return ctypes.addressof(value)


def _aligned(argument: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(argument, max(16, len(argument)))
