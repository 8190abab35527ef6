"""Where tasks lie: a file, a folder of files, or a checkout of KernelBench by level and problem."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UserError

_NUMBERED = re.compile(r"(\d+)_.+\.py")


def task_files(path: Path) -> list[Path]:
    """Return the references that a path names: the file itself, or those of a folder, in order.

    Raises UserError for a folder without any.
    """
    if not path.is_dir():
        return [path]
    found = [each for each in path.glob("*.py") if not each.name.startswith(("_", "."))]
    if not found:
        raise UserError(f"{path}: a folder without a .py file; name a reference, or its folder")
    return sorted(found, key=_order)


def kernelbench_files(folder: Path, level: int | None, problem: int | None) -> list[Path]:
    """Return problems of a checkout of KernelBench, in order: one, a level's, or levels 1 to 3.

    `folder` is the checkout, or the folder within it that holds level1, level2, ... Raises
    UserError where there is no such problem.
    """
    if problem is not None and level is None:
        raise UserError("--problem goes with --level: each level counts its problems from 1")
    levels = [level] if level is not None else [1, 2, 3]
    found = []
    for number in levels:
        places = [folder / f"level{number}", folder / "KernelBench" / f"level{number}"]
        place = next((each for each in places if each.is_dir()), None)
        if place is None:
            raise UserError(
                f"--kernelbench {folder}: there is no level{number} in it; give the folder that "
                "`git clone https://github.com/ScalingIntelligence/KernelBench` makes"
            )
        files = [each for each in place.glob("*.py") if _NUMBERED.fullmatch(each.name)]
        found += [
            each for each in sorted(files, key=_order)
            if problem is None or each.name.startswith(f"{problem}_")
        ]  # fmt: skip
    if not found:
        raise UserError(f"--kernelbench {folder}: level {level} has no problem {problem}")
    return found


def _order(path: Path) -> tuple[int, str]:
    numbered = _NUMBERED.fullmatch(path.name)
    return (int(numbered.group(1)) if numbered else 0, path.name)
