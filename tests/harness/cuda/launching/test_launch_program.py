"""The program that profilers watch: how it fills memory, on a driver that is the host's memory."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelblaster.harness.cuda.launching import launch_program
from kernelblaster.harness.process.children import Turn


class HostDriver:
    """Allocates and copies as libcuda does, in the memory of this process."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def call(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        block = (ctypes.c_char * size.value)()
        self.kept.append(block)
        ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64))[0] = ctypes.addressof(block)

    def cuMemsetD8_v2(self, address: Any, value: int, size: Any) -> None:
        ctypes.memset(address.value, value, size.value)

    def cuMemcpyHtoD_v2(self, address: Any, host: Any, size: Any) -> None:
        ctypes.memmove(address.value, host, size.value)

    def cuMemcpyDtoD_v2(self, target: Any, source: Any, size: Any) -> None:
        assert source.value + size.value <= target.value, "the two overlap"
        ctypes.memmove(target.value, source.value, size.value)


@pytest.mark.parametrize("size", [4, 10, 12, 25, 40, 47])
def test_a_tensor_repeats_what_its_file_holds(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(range(10)))
    driver = HostDriver()
    address = launch_program._tensor(driver, size, str(path))
    assert ctypes.string_at(address, size) == bytes(place % 10 for place in range(size))


def test_an_output_is_poisoned_and_nothing_has_no_memory() -> None:
    driver = HostDriver()
    assert ctypes.string_at(launch_program._tensor(driver, 5, None), 5) == b"\xff" * 5
    assert launch_program._tensor(driver, 0, None) == 0


def test_it_takes_memory_when_its_turn_has_come_and_says_when_it_is_over(tmp_path: Path) -> None:
    asked, given = Turn.files(tmp_path)
    came = threading.Event()

    def waits() -> None:
        with launch_program._turn(str(asked), str(given)):
            came.set()

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    ends = time.monotonic() + 10
    while not asked.exists() and time.monotonic() < ends:
        time.sleep(0.001)
    assert asked.exists() and not came.wait(0.05)
    given.touch()
    came.wait(10)
    while asked.exists() and time.monotonic() < ends:
        time.sleep(0.001)
    assert came.is_set() and not asked.exists()
    thread.join(0.05)
    assert thread.is_alive()  # It would ask for the next while it has this one.
    given.unlink()
    thread.join(10)
    assert not thread.is_alive()
