"""What a recorded call may ask for, at the edge of each limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.host.calls import DynamicShared, Launch, Transfer
from kernelblaster.harness.host.checks import STREAM, Checks
from kernelblaster.harness.host.entries import Entry
from kernelblaster.harness.host.properties import properties_of
from kernelblaster.harness.records.builds import KernelResources

H200 = properties_of(find_gpu("H200"))
OPT_IN, DEFAULT = H200.limits.shared_bytes_optin, H200.limits.shared_default
PLAIN = Launch("k", (1, 1, 1), (32, 1, 1), 0, STREAM, (), (bytes(8), bytes(4)))


def checks(registers: int = 32, static: int = 0, threads: int = 1024, **shared: int) -> Checks:
    known = KernelResources(kernel="k", registers=registers, static_shared_bytes=static)
    entry = Entry((8, 4), threads, waits=True)
    return Checks(H200, {"k": entry}, {"k": known}, dict(shared))


def faults(looks: Checks, call: Any = PLAIN, **changes: Any) -> list[tuple[str, str]]:
    return list(looks.faults(replace(call, **changes)))


@pytest.mark.parametrize(
    ("changes", "fine"),
    [
        ({}, True),
        ({"block": (1024, 1, 1)}, True),
        ({"block": (1, 1024, 1)}, True),
        ({"block": (1, 1, 64)}, True),
        ({"block": (16, 1, 64)}, True),
        ({"block": (1025, 1, 1)}, False),
        ({"block": (1, 1025, 1)}, False),
        ({"block": (1, 1, 65)}, False),
        ({"block": (32, 33, 1)}, False),
        ({"block": (32, 0, 1)}, False),
        ({"block": (2000, 0, 1)}, False),
        ({"block": (0, 2000, 1)}, False),
        ({"grid": ((1 << 31) - 1, 1, 1)}, True),
        ({"grid": (1, (1 << 16) - 1, (1 << 16) - 1)}, True),
        ({"grid": (1 << 31, 1, 1)}, False),
        ({"grid": (1, 1 << 16, 1)}, False),
        ({"grid": (1, 1, 1 << 16)}, False),
        ({"grid": (0, 1, 1)}, False),
        ({"grid": (1, 0, 1)}, False),
        ({"grid": (1, 1, 0)}, False),
        ({"kernel": "other"}, False),
        ({"arguments": (bytes(8),)}, False),
        ({"arguments": (bytes(4), bytes(8))}, False),
        ({"shared_bytes": DEFAULT}, True),
        ({"shared_bytes": DEFAULT + 1}, False),
    ],
)
def test_the_shape_of_a_launch(changes: dict[str, Any], fine: bool) -> None:
    found = faults(checks(), **changes)
    assert len(found) == (0 if fine else 1)
    assert fine or found[0][0] == "invalid_launch"


@pytest.mark.parametrize("threads", [127, 128])
def test_launch_bounds_are_kept(threads: int) -> None:
    found = faults(checks(threads=threads), block=(128, 1, 1))
    assert bool(found) is (threads < 128)


@pytest.mark.parametrize(
    ("limit", "static", "dynamic", "fine"),
    [
        (None, 1024, DEFAULT - 1024, True),
        (None, 1024, DEFAULT - 1023, False),
        (OPT_IN, 0, OPT_IN, True),
        (OPT_IN - 1024, 1024, OPT_IN - 1024, True),
        (60000, 1024, 60000, True),
        (60000, 1024, 60001, False),
        (DEFAULT, 1024, DEFAULT, False),
        (100, 0, 101, False),
        (100, 0, 100, True),
    ],
)
def test_shared_memory(limit: int | None, static: int, dynamic: int, fine: bool) -> None:
    looks = checks(static=static)
    if limit is not None:
        assert not faults(looks, DynamicShared("k", limit))
    found = faults(looks, shared_bytes=dynamic)
    assert bool(found) is not fine
    if found:
        assert f"of {DEFAULT if limit is None else limit} (" in found[0][1]
        assert f"raises it up to {OPT_IN - static})" in found[0][1]


@pytest.mark.parametrize(
    ("limit", "fine"), [(0, True), (OPT_IN - 512, True), (OPT_IN - 511, False), (-1, False)]
)
def test_how_much_shared_memory_may_be_asked_for(limit: int, fine: bool) -> None:
    found = faults(checks(static=512), DynamicShared("k", limit))
    assert bool(found) is not fine
    assert fine or found[0][1].endswith(f"the GPU allows {OPT_IN - 512}")


@pytest.mark.parametrize(("registers", "fine"), [(64, True), (65, False)])
def test_registers(registers: int, fine: bool) -> None:
    found = faults(checks(registers), block=(1024, 1, 1))
    assert bool(found) is not fine
    assert fine or "too many resources" in found[0][1]


@pytest.mark.parametrize(
    ("attribute", "grid", "fine"),
    [
        (((2, (1, 0, 0)),), (2 * H200.sms, 1, 1), True),
        (((2, (1, 0, 0)),), (2 * H200.sms + 1, 1, 1), False),
        (((2, (1, 0, 0)),), (H200.sms, 2, 2), False),
        (((2, (1, 0, 0)),), (1, H200.sms, 3), False),
        (((2, (0, 0, 0)),), (2 * H200.sms + 1, 1, 1), True),
        (((4, (2, 1, 1)), (6, (1, 0, 0))), (2 * H200.sms + 2, 1, 1), True),
    ],
)
def test_a_cooperative_grid_fits_the_gpu(
    attribute: tuple[Any, ...], grid: tuple[int, int, int], fine: bool
) -> None:
    found = faults(checks(), grid=grid, block=(1024, 1, 1), attributes=attribute)
    assert bool(found) is not fine
    assert fine or "holds 2 on each of 132 multiprocessors" in found[0][1]


def test_a_block_of_another_size_than_its_kernel_names_is_not_launched() -> None:
    named = replace(checks(), entries={"k": Entry((8, 4), 32, (32, 1, 1))})
    assert not faults(named)
    (found,) = faults(named, block=(16, 2, 1))
    assert found[0] == "invalid_launch" and "__block_size__" in found[1]


def test_a_launch_ahead_of_its_time_waits_for_the_one_before() -> None:
    attribute = ((6, (1, 0, 0)),)
    never = replace(checks(), entries={"k": Entry((8, 4), 1024)})
    (found,) = faults(never, attributes=attribute)
    assert found[0] == "race" and "never waits" in found[1]
    assert not faults(never, attributes=((6, (0, 0, 0)),))
    assert not faults(checks(), attributes=attribute)


def test_attributes_that_keep_lines_are_forbidden() -> None:
    (found,) = faults(checks(), attributes=((1, (0, 0, 0)),))
    assert found[0] == "forbidden" and "launch attribute 1" in found[1]


@pytest.mark.parametrize(
    ("stream", "words"),
    [(STREAM, ""), (0, "the default stream"), (1, "the default stream"), (2, "the default stream"),
     (3, "another stream")],
)  # fmt: skip
def test_all_work_goes_to_the_stream_of_the_call(stream: int, words: str) -> None:
    moved = Transfer(True, 0, 0, 0, 0, 0, 4, 1, stream, b"")
    for what, call in (
        ("k<<<(1,1,1), (32,1,1), 0>>>", PLAIN), ("cudaMemcpyAsync", moved),
        ("cudaMemcpy2DAsync", replace(moved, height=2)),
        ("cudaMemsetAsync", replace(moved, copy=False)),
    ):  # fmt: skip
        found = faults(checks(), call, stream=stream)
        assert [kind for kind, _ in found] == (["forbidden"] if words else [])
        assert not words or found[0][1].startswith(f"{what} on {words}")
