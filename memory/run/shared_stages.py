"""What runs of one machine found out about sources, so that no other asks the device again."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Generic

from pydantic import Field, ValidationError

from ...harness.build.cache import cache_root, new_entry, trim_entries, used_entry
from ...harness.devices.protocol import Measurement
from ...harness.errors import UserError
from ...harness.files import LARGEST_DOCUMENT_BYTES, read_regular
from ...harness.records.evaluations import StageResult
from ...harness.records.identity import sha256_of
from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from ...harness.task.pytorch import torch_version
from ..database import Stored

STAGES = ("compile", "verify", "profile")
"""What is shared; a confirmation is of the run that asks for it."""
_BY_THE_MACHINE = frozenset(
    {Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.DEGENERATE_TASK, Outcome.PROFILER_UNAVAILABLE}
)
"""Outcomes in which the state of the machine, and not the source alone, may have had a part."""
_LACKING = ("profiler_unavailable", "sanitizer_missing", "compile_failure")
"""Facts that say what the machine could not do at the time: it may be able to the next time."""
_FILE = "stage.json"


def fresh_by_default() -> bool:
    """Say whether runs evaluate all themselves unless told otherwise: $KERNELBLASTER_FRESH."""
    return os.environ.get("KERNELBLASTER_FRESH", "").lower() in ("1", "true", "yes", "on")


class _Kept(Record, Generic[Stored]):
    """What a file holds."""

    seconds: float = Field(ge=0, allow_inf_nan=False)
    """That the device worked on it."""
    found: Stored


@functools.cache
def _kept(kind: type[Stored]) -> type[_Kept[Stored]]:
    """Return the record of a kind, which pydantic would make anew whenever nobody holds one."""
    return _Kept[kind]  # type: ignore[valid-type]


class SharedStages:
    """Results of stages in a folder, by key and stage.

    A key names source, task, device, toolchain and the versions of judge and device; PyTorch's
    version, whose answers are compared with, is added here. An entry is there whole or not at all.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Take a folder, by default one of the cache.

        Raises:
            UserError: the cache cannot be written.
        """
        self._folder = folder or cache_root() / "stages"

    def recall(self, key: str, stage: str, kind: type[Stored]) -> tuple[Stored, float] | None:
        """Return what a run found and the seconds that the device worked on it.

        None where no run has, or where that cannot be read any more.
        """
        entry = self._entry(key, stage)
        try:
            text = read_regular(entry / _FILE, LARGEST_DOCUMENT_BYTES, "a stage's result")
            kept = _kept(kind).model_validate_json(text)
        except (OSError, UserError):
            return None
        except ValidationError:
            shutil.rmtree(entry, ignore_errors=True)  # Else it would stay, and be of no use.
            return None
        used_entry(entry)
        return kept.found, kept.seconds

    def keep(
        self, key: str, stage: str, result: StageResult | Measurement, seconds: float
    ) -> None:
        """Keep a result for other runs, where it is one that they would find too."""
        said = result.stage if isinstance(result, Measurement) else result
        if stage not in STAGES or said.outcome in _BY_THE_MACHINE:
            return
        if any(said.facts.get(name) for name in _LACKING):
            return
        entry = self._entry(key, stage)
        with new_entry(entry) as directory:
            kept = {"seconds": seconds, "found": result.model_dump(mode="json")}
            (directory / _FILE).write_text(json.dumps(kept), encoding="utf-8")
        trim_entries(self._folder, entry)

    def _entry(self, key: str, stage: str) -> Path:
        name = sha256_of(key, stage, torch_version())
        return self._folder / name[:2] / name
