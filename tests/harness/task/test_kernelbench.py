"""Where tasks lie: files, folders, and a checkout of KernelBench."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.task.kernelbench import kernelbench_files, task_files


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for level, problems in ((1, (1, 2, 10)), (2, (1, 18)), (3, (4,))):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in problems:
            (folder / f"{number}_A_problem.py").write_text("")
        (folder / "readme.py").write_text("")
    return tmp_path


def places(files: list[Path]) -> list[str]:
    return [f"{path.parent.name[-1]}/{path.name.split('_')[0]}" for path in files]


def test_problems_are_found_by_level_and_number(checkout: Path) -> None:
    assert places(kernelbench_files(checkout, 2, 18)) == ["2/18"]
    assert places(kernelbench_files(checkout, 1, 1)) == ["1/1"]
    assert places(kernelbench_files(checkout / "KernelBench", 1, None)) == ["1/1", "1/2", "1/10"]
    assert len(kernelbench_files(checkout, None, None)) == 6


@pytest.mark.parametrize(
    "level, problem, words",
    [(None, 3, "goes with --level"), (2, 3, "level 2 has no problem 3"), (5, None, "no level5")],
)
def test_what_is_not_there_is_said(
    checkout: Path, level: int | None, problem: int | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        kernelbench_files(checkout, level, problem)


def test_a_folder_is_its_tasks_and_a_file_itself(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "_helper.py").write_text("")
    (tmp_path / "b.py").write_text("")
    (tmp_path / "a.py").write_text("")
    assert [path.name for path in task_files(tmp_path)] == ["a.py", "b.py"]
    assert task_files(tmp_path / "a.py") == [tmp_path / "a.py"]
    with pytest.raises(UserError, match="without a .py file"):
        task_files(checkout / "KernelBench")
