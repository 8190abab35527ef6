"""What the policy is asked about a kernel, and what it expects."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any

from pydantic import Field, model_validator

from ...harness.gpus import architecture_family
from ...harness.records.evaluations import DeviceIdentity
from ...harness.records.record import Record
from .evidence import Circumstances
from .identity import Author


class LaunchAtHand(Record):
    """One kernel of a program, as the policy asks about it."""

    kernel: str
    """Its name."""
    share: float
    """Of the program's time that its launches take."""
    signature: tuple[float, ...]
    """Of the longest of them."""


class KernelAtHand(Record):
    """A program as it is, before something is done to it."""

    task_id: str
    source_sha256: str
    microseconds: float
    """Of one call."""
    bound_us: float | None = None
    """That no kernel of the task can be faster than."""
    launches: tuple[LaunchAtHand, ...] = Field(min_length=1)
    """Its kernels, the costliest first."""
    targets: dict[str, str] = Field(default_factory=dict)
    """By technique, the kernel that its rewrite changes, or that somebody named for it; of others
    the one that promises most."""
    able: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By technique, the kernels that it has work in; one that is not named here may have in any."""
    applied: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    """Technique, kernel and setting of each step on the way to it, in order."""


class PolicyContext(Circumstances):
    """What the policy is asked for: circumstances, and the kernel at hand where there is one.

    Without a harness, evidence of all versions counts alike.
    """

    tried: tuple[str, ...] = ()
    """Techniques already tried on this very source: left out."""
    writer: Author = "builtin"
    """Who is to write."""
    kernel: KernelAtHand | None = None
    """None where a state alone is asked about."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """Technique, kernel and setting (`setting_name`) of what failed in this run: out of it."""
    own: tuple[str, ...] = ()
    """Ids of evidence that counts though it came after the snapshot: the rollout's own."""

    @classmethod
    def of(
        cls, identity: DeviceIdentity, op_class: str, dtype: str, tried: tuple[str, ...] = ()
    ) -> PolicyContext:
        """Return the circumstances of a task on a device."""
        return cls(
            device_kind=identity.kind,
            gpu=identity.gpu,
            arch=identity.arch,
            family=architecture_family(identity.arch),
            op_class=op_class,
            dtype=dtype,
            harness=identity.harness,
            tried=tried,
        )


class ExpectedGain(Record):
    """What the policy expects of a technique on a kernel, and how sure it is."""

    mean_log: float
    """Mean of the log speedup of the next try, given that it passes."""
    std_log: float
    """Standard deviation of the same."""
    most_log: float | None = None
    """Log speedup that the kernel's share of the time, or the task's bound, allows at most."""
    success_probability: float
    """That a candidate compiles and verifies."""
    passed: float = Field(gt=0)
    """Beta parameter of the success probability."""
    failed: float = Field(gt=0)
    """The other."""
    trials: float
    """Tries that passed behind it: those on the kernels most like this one."""
    score: float
    """Expected log gain of trying, failures included: what candidates are ordered by."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, values: Any) -> Any:
        """Take one that has a posterior."""
        if not (isinstance(values, dict) and isinstance(values.get("posterior"), dict)):
            return values
        belief = values["posterior"]
        kept = {name: values[name] for name in values if name in cls.model_fields}
        return {**kept, "passed": belief["passes"], "failed": belief["failures"]}


def setting_name(setting: Mapping[str, Any]) -> str:
    """Return the name of a parameter setting, whatever the order of its parameters: one object,
    for few settings are told of many times."""
    return intern(str(sorted(setting.items())))
