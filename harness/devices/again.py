"""Verify and measure once more, and side by side, on any device: how a winner is confirmed."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..records import StageResult, Task
from .protocol import Comparison, Device, Measurement


@runtime_checkable
class Confirming(Protocol):
    """A device that has more to say of a winner than `verify` (a sanitizer, a fresh process)."""

    async def confirm(self, task: Task, source: str) -> StageResult:
        """Verify with every check the device has, in a process that has run no candidate."""
        ...


@runtime_checkable
class Renewable(Protocol):
    """A device whose processes live long; others start one for every request anyway."""

    async def profile_fresh(self, task: Task, source: str) -> Measurement:
        """Do what `profile` does in a process that has run no candidate before."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A device that can time two sources in the same rounds: what drifts in time cancels."""

    async def compare(self, task: Task, first: str, second: str) -> Comparison:
        """Time two sources that passed verification side by side."""
        ...


async def verify_again(device: Device, task: Task, source: str) -> StageResult:
    """Verify a candidate in a fresh process, with every check the device has."""
    if isinstance(device, Confirming):
        return await device.confirm(task, source)
    return await device.verify(task, source)


async def profile_again(device: Device, task: Task, source: str) -> Measurement:
    """Time and profile a candidate in a fresh process, on another sample of its work."""
    if isinstance(device, Renewable):
        return await device.profile_fresh(task, source)
    return await device.profile(task, source, sample=1)
