"""Who waits for a reference is told what of it is run."""

from __future__ import annotations

import contextvars
from pathlib import Path

import pytest
from small_references import reference

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.reference.loading import under_way
from kernelblaster.harness.task import loading


def test_the_latest_that_was_begun_is_noted(tmp_path: Path) -> None:
    contextvars.copy_context().run(begun_in_order, tmp_path / loading.UNDER_WAY)


def begun_in_order(noted: Path) -> None:
    under_way.note_in(noted)
    made = reference("x")
    assert noted.read_text() == "the file"
    instance = made.instance(0)
    assert noted.read_text() == "get_inputs()"
    made.outputs(instance.model, instance.arguments)
    made.instance(1)
    assert noted.read_text() == "forward()"


def test_a_file_that_does_not_end_is_not_said_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "TELL_SECONDS", 0.5)
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    path, told = tmp_path / "task.py", list[str]()
    path.write_text("while True:\n    pass\n")
    with pytest.raises(UserError) as refused:
        loading.load_task_now(path, tell=told.append, seconds=2.0)
    assert "is being imported" in told[-1] and "(the file is being imported)" in str(refused.value)
    assert "--set" not in str(refused.value)
