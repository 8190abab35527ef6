"""The door to system calls that neither Python nor the C library offers."""

from __future__ import annotations

import ctypes
import os
import platform

from .system_calls import MACHINES, NUMBERS


class Refused(OSError):
    """The kernel does not offer a call, or the surroundings forbid it."""

    def __str__(self) -> str:
        """In words, without the number."""
        return self.strerror or super().__str__()


def machine() -> str | None:
    """Return this processor as MACHINES names it; None where it is none of them."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    # 32-bit code on such a processor has other numbers.
    return name if name in MACHINES and ctypes.sizeof(ctypes.c_void_p) == 8 else None


def system_call(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call of NUMBERS; buffers are handed over by address. Raises Refused."""
    here = machine()
    number = None if here is None else NUMBERS[name][MACHINES.index(here)]
    if number is None:
        raise Refused(0, f"unknown on {platform.machine()}")
    return _checked("syscall", number, *arguments)


def process_control(option: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> int:
    """Call prctl(). Raises Refused."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked("prctl", option, *padded)


def library_call(name: str, *arguments: int) -> int:
    """Call a function of the C library that returns -1 and errno. Raises Refused."""
    return _checked(name, *arguments)


def _checked(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    # Only syscall() returns a long; read as one, another function's -1 would not be negative.
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    converted = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    result = int(function(*converted))
    if result < 0:
        number = ctypes.get_errno()
        raise Refused(number, os.strerror(number))
    return result
