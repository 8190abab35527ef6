"""What is of no use never makes a kernel faster: barriers, loads, stores, warps, passes.

A search climbs whatever the model rewards. What may differ is what ptxas makes of the edit: where
it takes other registers, other blocks are resident, and a few instructions move.
"""

from __future__ import annotations

import pytest
from often_or_seldom import every

from tests.support.edited_kernels import EDITS, HEAD, KERNELS, plain
from tests.support.timed_kernels import Timed, TimedKernels

IDLE_WARPS = (1, 4)
NOISE = 0.03
"""What the schedule of ptxas and other loads found in the L1 may gain."""


def _room(name: str, idle: int) -> bool:
    return KERNELS[name].threads + 32 * idle <= 1024


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TimedKernels:
    """The kernels that a chosen test asks for, with all edits."""
    sources = [HEAD]
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or item.module is not request.module:
            continue
        name = item.callspec.params["name"]
        kernel = KERNELS[name]
        sources.append(plain(f"{name}__plain", kernel))
        sources += [edit(f"{name}__{what}", kernel) for what, edit in EDITS.items()]
        sources += [plain(f"{name}__idle{idle}", kernel, idle)
                    for idle in IDLE_WARPS if _room(name, idle)]  # fmt: skip
    return TimedKernels("".join(sources), tmp_path_factory.mktemp("useless"))


def _timed(kernels: TimedKernels, name: str, what: str, idle: int = 0) -> Timed:
    kernel = KERNELS[name]
    return kernels.run(f"{name}__{what}", kernel.grid, kernel.threads + 32 * idle, kernel.n)


@pytest.mark.parametrize("name", every(18, KERNELS, always=lambda name: name == "gather_chain"))
def test_nothing_useless_gains(kernels: TimedKernels, name: str) -> None:
    before = _timed(kernels, name, "plain").profile.microseconds
    edited = {what: _timed(kernels, name, what) for what in EDITS}
    edited |= {f"idle{idle}": _timed(kernels, name, f"idle{idle}", idle)
               for idle in IDLE_WARPS if _room(name, idle)}  # fmt: skip
    faster = {
        what: round(found.profile.microseconds / before, 3)
        for what, found in edited.items()
        if found.profile.microseconds < (1 - NOISE) * before
    }
    assert not faster, f"{name}: {before:.2f} us, of which these are left"
