"""First kernels of tasks of other kinds: each is written, and right on a simulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import written_and_verified
from kinds_of_tasks import LOADED
from often_or_seldom import every

from kernelblaster.harness.records.readings import Reading
from kernelblaster.harness.task.loading import load_task

KINDS = [name for name, (_, told) in LOADED.items() if not told.get("no program")]


@pytest.mark.parametrize("name", every(8, KINDS))
async def test_the_first_kernel_is_right(name: str, tmp_path: Path) -> None:
    source, told = LOADED[name]
    path = tmp_path / "task.py"
    path.write_text(source)
    asked = {key: told[key] for key in ("mode", "dtype") if key in told}
    reading = Reading(allow_degenerate=True, **asked)
    await written_and_verified(await load_task(path, reading=reading))
