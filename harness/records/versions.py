"""Versions of the judge and of each kind of device, which every key of a result holds."""

from __future__ import annotations

JUDGE_VERSION = "44"
"""Raised when a change of what all devices share (tasks, cases, judging, vetting, building) could
change an evaluation: part of every cache key."""
DEVICE_VERSIONS: dict[str, str] = {"simulated": "29", "cuda": "20"}
"""Raised when a change of one kind of device alone could change what it says: part of the keys of
its results, and of no others."""


def harness_version(measures: str) -> str:
    """Return the version of all that has a part in results of a kind of device.

    A deferred device's results come from another kind, by default from a GPU.
    """
    return f"{JUDGE_VERSION}.{DEVICE_VERSIONS.get(measures, DEVICE_VERSIONS['cuda'])}"
