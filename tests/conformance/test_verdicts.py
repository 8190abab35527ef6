"""The conformance suite of verdicts: every device says the same of the same kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import get_args

import pytest
from exploits.corpus import Judged, Tasks, judged, simulated
from often_or_seldom import every

from conformance.verdicts import KERNELS, OWN, Kernel, Kind
from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome

HEALTHY = next(kernel for kernel in KERNELS if kernel.name == "plain")


def name_of(kernel: Kernel) -> str:
    return f"{kernel.kind}-{kernel.name}"


# ---- on the simulated device ----


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[str, Judged | BaseException]:
    """What the simulated device says of every kernel that a chosen test asks for."""
    chosen = [
        item.callspec.params["kernel"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_of_the_simulated_device"
    ]
    return asyncio.run(simulated({name_of(each): (each.task, each.source) for each in chosen}))


# The members of the exploit corpus are judged by its own tests, in the same way.
@pytest.mark.parametrize("kernel", every(15, OWN, lambda kernel: kernel.kind), ids=name_of)
def test_of_the_simulated_device(
    verdicts: dict[str, Judged | BaseException], kernel: Kernel
) -> None:
    found = verdicts[name_of(kernel)]
    if isinstance(found, BaseException):
        raise found
    assert found.verdict in kernel.verdicts, f"{found.verdict}: {found.stage.reason}"


# ---- on a GPU ----


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaDevice]:
    try:
        device = CudaDevice(candidate_seconds=5.0, with_compile=False, with_counters=False)
    except UserError as error:
        pytest.skip(str(error))
    yield device
    device.close()


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks()


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
async def test_of_the_gpu(gpu: CudaDevice, tasks: Tasks, kernel: Kernel) -> None:
    found = await judged(gpu, await tasks.load(kernel.task), kernel.source)
    assert found.verdict in kernel.verdicts, f"{found.verdict}: {found.stage.reason}"
    if not kernel.passes:
        after = await gpu.verify(await tasks.load(HEALTHY.task), HEALTHY.source)
        assert after.outcome is Outcome.PASSED, f"after {kernel.name}: {after.reason}"


# ---- the suite itself ----


def test_there_are_sixty_of_every_kind_with_a_name_each() -> None:
    assert len(KERNELS) >= 60
    assert {kernel.kind for kernel in KERNELS} == set(get_args(Kind))
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)
    assert 20 <= sum(kernel.passes for kernel in KERNELS) <= len(KERNELS) - 30
