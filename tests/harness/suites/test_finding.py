"""A suite by its name: whose format it has is seen, and what is no suite is one clear line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.suites.finding import find_suite

KINDS = Path(__file__).resolve().parents[3] / "benchmarks" / "suites" / "kinds"


def test_a_folder_of_references_in_its_order_and_only_those_asked_for(tmp_path: Path) -> None:
    for name in ("2_b", "10_c", "1_a", "_own"):
        (tmp_path / f"{name}.py").write_text(f"# {name}\n")
    found = find_suite(str(tmp_path))
    assert [task.name for task in found.tasks] == ["1_a", "2_b", "10_c"]
    assert found.tasks[0].source == "# 1_a\n" and found.name == tmp_path.name
    some = find_suite(str(tmp_path), only=["1*", "2_b"])
    assert [task.name for task in some.tasks] == ["1_a", "2_b", "10_c"][:3]
    with pytest.raises(UserError, match="--tasks 9.*no task of .* is called so"):
        find_suite(str(tmp_path), only=["1_a", "9*"])


def test_what_cannot_be_a_task_is_left_out_and_keeps_no_other_back(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("# good\n")
    (tmp_path / "a name with blanks.py").write_text("# bad\n")
    (tmp_path / "no_text.py").write_bytes(b"\xff\xfe")
    (tmp_path / "to_nowhere.py").symlink_to(tmp_path / "missing")
    found = find_suite(str(tmp_path))
    assert [task.name for task in found.tasks] == ["good"]
    why = {each.name: each.reason for each in found.left_out}
    assert "cannot be the name" in why.pop("'a name with blanks'")
    assert len(why) == 2 and all("cannot be read" in each for each in why.values())
    (tmp_path / "good.py").unlink()
    with pytest.raises(UserError, match="none of its tasks can be read; the first: "):
        find_suite(str(tmp_path))


def test_a_checkout_of_kernelbench_is_known_by_its_levels(tmp_path: Path) -> None:
    for level in (1, 2, 3):
        (tmp_path / "KernelBench" / f"level{level}").mkdir(parents=True)
        (tmp_path / "KernelBench" / f"level{level}" / "1_Same.py").write_text("# same\n")
    names = [task.name for task in find_suite(str(tmp_path)).tasks]
    assert names == ["level1_1_Same", "level2_1_Same", "level3_1_Same"]
    assert [task.name for task in find_suite(str(tmp_path), level=2).tasks] == names[1:2]


def test_the_suite_of_kinds_has_twenty_tasks_and_more() -> None:
    assert len(find_suite(str(KINDS)).tasks) >= 20


@pytest.mark.parametrize("name", ["nowhere", "hub:no/network"])
def test_what_is_no_suite_is_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="no such suite|pip install datasets") as caught:
        find_suite(name)
    assert "\n" not in str(caught.value)


def test_the_hub_is_asked_for_a_split_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str, split: str) -> list[dict[str, Any]]:
        asked.append((name, split))
        if split == "level_3":
            raise ConnectionError("the hub is away\nfor long")
        return [{"code": f"# {n}", "name": f"{n}_X", "problem_id": n, "level": 1} for n in (2, 1)]

    asked: list[tuple[str, str]] = []
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found = find_suite("hub:own/bench", level=1)
    assert [task.name for task in found.tasks] == ["level1_1_X", "level1_2_X"]
    assert asked == [("own/bench", "level_1")] and found.name == "bench"
    with pytest.raises(UserError, match="level_3 cannot be had: the hub is away; try again"):
        find_suite("hub:own/bench")
