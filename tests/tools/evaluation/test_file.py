"""`evaluate` of one file: what a confirmation adds, on devices of text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import graph_support
import pytest

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.evaluations import Evaluation
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.tools.evaluation import file
from kernelblaster.tools.solutions import first_kernel
from kernelblaster.tools.solutions.reading import EXPORTED

GOOD = "us: 10.0\n"


class Drifting(graph_support.TextDevice):
    """Takes a tenth longer for what is said to drift, and fails what is said to break, later on."""

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        source = source.replace("us: 10.0\ndrifts", "us: 11.0") if sample else source
        if sample and "breaks" in source:
            source += "outcome: profiler_unavailable\n"
        return await super().profile(task, source, sample)


def evaluated(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    source: str,
    confirm: bool = True,
    name: str = "k.cu",
) -> Evaluation:
    async def load(path: Path, *given: Any) -> Task:
        return graph_support.text_task(path.stem)

    monkeypatch.setattr(file, "load_task", load)
    monkeypatch.setattr(file, "open_device", lambda kind, gpu: Drifting(gpu))
    kernel = folder / name
    kernel.write_text(source)
    return asyncio.run(file.evaluate_file(kernel, folder / "t.py", "x", "H100", {}, confirm))


def test_a_confirmed_kernel_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = evaluated(monkeypatch, tmp_path, GOOD)
    assert found.outcome is Outcome.PASSED and "unconfirmed" not in found.facts
    assert found.facts["confirmed"] == "measured 10.00 us first and 10.00 us again"
    alone = evaluated(monkeypatch, tmp_path, GOOD, confirm=False)
    assert not {"confirmed", "unconfirmed"} & set(alone.facts)


def test_a_time_that_does_not_hold_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = evaluated(monkeypatch, tmp_path, GOOD + "drifts\n")
    assert found.outcome is Outcome.PASSED and "confirmed" not in found.facts
    assert found.facts["unconfirmed"] == "measured 10.00 us first and 11.00 us again"


def test_what_does_not_pass_again_has_no_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = evaluated(monkeypatch, tmp_path, GOOD + "breaks\n")
    assert found.outcome is Outcome.PROFILER_UNAVAILABLE and found.timing is None
    assert str(found.facts["unconfirmed"]).startswith("it did not pass again: ")


def test_what_failed_at_first_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = evaluated(monkeypatch, tmp_path, GOOD + "outcome: race\n")
    assert found.outcome is Outcome.RACE and not found.facts


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print('hello')\n", "k.py: a Python file without `class ModelNew`; give a CUDA source"),
        ("class ModelNew:\n    pass\n", "k.py: it compiles no CUDA text with load_inline; write"),
        ("class ModelNew(:\n", "k.py:1: it is not Python"),
    ],
)
def test_python_is_a_solution_or_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        evaluated(monkeypatch, tmp_path, source, name="k.py")


def test_a_solution_is_evaluated_as_the_launch_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(first_kernel, "restate", lambda solution, task: solution.cuda)
    text = f'load_inline(cuda_sources=["""{EXPORTED}\n{GOOD}"""])\n\nclass ModelNew:\n    pass\n'
    found = evaluated(monkeypatch, tmp_path, text, name="k.py")
    assert found.outcome is Outcome.PASSED
