"""What the documents name is there: files, functions, the order of rooms, the graphs as drawn."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import contributing
import graph_support
import pytest
import test_floors
from places import ROOT
from scripts import import_script

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
HOUSE = "benchmarks|cli|docs|examples|graph|harness|memory|nodes|reports|tests|tools"
PATH = re.compile(rf"(?<![\w./-])(?:\.ci|{HOUSE})/[\w./-]*\w/?|(?<![\w./-])(?:{HOUSE})/")
NAMED = re.compile(r"`(\w+/[\w/]+\.py)`((?:,?\s+`[A-Za-z_]\w*(?:\.\w+)?`)+)")
"""A file and the names in it that the text goes on to speak of."""
ADDED = {"nodes/code_reader", *contributing.BLOCKS}
"""What CONTRIBUTING.md adds."""


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods that a file defines."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_is_named_is_there(page: Path) -> None:
    named = {found.rstrip("/") for found in PATH.findall(page.read_text())}
    assert not sorted(name for name in named - ADDED if not (ROOT / name).exists())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_is_in_the_file_it_is_told_of(page: Path) -> None:
    for path, names in NAMED.findall(page.read_text()):
        told = set(re.findall(r"`([\w.]+)`", names))
        if (ROOT / path).exists():
            assert told <= defined(ROOT / path), f"{path}: {told - defined(ROOT / path)}"
        else:
            assert path in ADDED, path


def test_the_walks_name_many_functions() -> None:
    """Else the two tests above look for nothing."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert len(NAMED.findall(page)) > 40 and len(PATH.findall(page)) > 80


def test_every_room_has_its_line() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    agents = {f"nodes/{name}" for name in test_floors.AGENTS}
    rooms = {
        str(path.parent.relative_to(ROOT)) for path in test_floors.SOURCES
        if path.name == "__init__.py" and path.parent != ROOT
    }  # fmt: skip
    assert not sorted(room for room in rooms - agents if f"`{room}/`" not in page)


@pytest.mark.parametrize("folder", test_floors.ORDER)
def test_the_order_is_the_one_that_is_held(folder: str) -> None:
    page = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    steps = [
        "(an agent each)" if rooms == test_floors.AGENTS
        else rooms if isinstance(rooms, str)
        else f"({', '.join(rooms)})" if len(rooms) > 1
        else rooms[0]
        for rooms in test_floors.ORDER[folder]
    ]  # fmt: skip
    assert f"{folder or 'package'} {' → '.join(steps)}" in page


def drawing() -> ModuleType:
    """Return the script that draws the graphs."""
    return import_script(ROOT / "docs" / "draw_graphs.py")


def test_the_graphs_are_drawn_as_they_are_wired() -> None:
    script = drawing()
    page = script.PAGE.read_text()
    assert script.with_drawings(page) == page, "run: python docs/draw_graphs.py"
    assert "record_step -.-> state_extractor" in page
    stale = page.replace("record_step -.-> finish", "record_step -.-> report")
    assert script.with_drawings(stale) == page
    with pytest.raises(ValueError, match="rollout 0 times"):
        script.with_drawings(page.replace("graph: rollout", "graph: another"))


async def test_the_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    graph_support.install(monkeypatch.setattr)
    graph_support.install_evaluate(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "softmax.py").write_text("")
    space: dict[str, Any] = {}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    ran = eval(compile(code, "README.md", "exec", flags, dont_inherit=True), space)
    assert inspect.iscoroutine(ran)
    await ran
    assert space["answer"]["result"].gain == pytest.approx(space["result"].gain)
    assert space["answer"]["result"].gpu == "H100"
    assert space["tool"].name == "optimize_kernel" and callable(space["node"])
    assert "passed" in capsys.readouterr().out
