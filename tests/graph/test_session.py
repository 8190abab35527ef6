"""A run that cannot begin leaves nothing, however long it took to find that out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelblaster.graph.session import Session
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.task import loading
from kernelblaster.nodes.records.plan import OptimizeRequest, RunContext


async def test_that_a_file_is_read_is_no_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "TELL_SECONDS", 0.02)
    task = tmp_path / "task.py"
    task.write_text("import time\ntime.sleep(0.3)\n")
    request = OptimizeRequest(task=str(task), run=str(tmp_path / "run"))
    session = Session.create(request, RunContext(device="simulated", gpu="H100"))
    events: list[dict[str, Any]] = []
    try:
        with pytest.raises(UserError, match="Model"):
            await session.run(events.append)
        assert any("being imported" in event.get("text", "") for event in events)
        assert not session.begun
        session.discard_unserved()
        assert not (tmp_path / "run").exists()
    finally:
        session.close()
