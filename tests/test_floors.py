"""The house stands on floors: an import never points up, and nothing heavy loads by itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kernelblaster

ROOT = Path(kernelblaster.__file__).resolve().parent
FLOORS = ["harness", "memory", "tools", "nodes", "graph", ""]
FACE = {"__init__.py", "__main__.py", "settings.py"}
TOP = "cli"
"""The folder that stands on the top floor with the face."""
SOURCES = sorted(
    path
    for floor in (*FLOORS, TOP)
    for path in ((ROOT / floor).rglob("*.py") if floor else ROOT.glob("*.py"))
)


def floor_of(parts: tuple[str, ...]) -> int:
    """Return the index of the floor that a dotted module (less the package name) stands on.

    The face and `cli` are the last.
    """
    return FLOORS.index(parts[0]) if parts and parts[0] in FLOORS else FLOORS.index("")


def imported(path: Path) -> list[tuple[str, ...]]:
    """Return the modules of this package that a file imports, as parts below the package."""
    here = path.relative_to(ROOT).parts
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            found.append((*base, *(node.module or "").split(".")))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelblaster"):
            found.append(tuple((node.module or "").split(".")[1:]))
    return [tuple(part for part in parts if part) for parts in found]


def test_every_floor_has_modules() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_up(path: Path) -> None:
    own = floor_of(path.relative_to(ROOT).parts)
    for parts in imported(path):
        assert floor_of(parts) <= own, f"{path} imports {'.'.join(parts)}"


def test_the_commands_stand_on_what_they_share() -> None:
    for path in (ROOT / TOP).rglob("*.py"):
        assert not [parts for parts in imported(path) if parts[:1] in ((), ("__main__",))], path


def test_records_import_nothing_of_the_house() -> None:
    for name in ("records.py", "errors.py"):
        assert imported(ROOT / "harness" / name) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_say_why_they_exist_and_import_relatively(path: Path) -> None:
    tree = ast.parse(path.read_text())
    first = (ast.get_docstring(tree) or "").split("\n")[0]
    assert first.endswith("."), f"{path} opens without one sentence"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and path.name != "__init__.py":
            assert not (node.module or "").startswith("kernelblaster"), path
        if isinstance(node, ast.Import):
            assert not any(item.name.startswith("kernelblaster") for item in node.names), path


def test_only_the_face_lives_in_the_root() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == FACE


def test_importing_the_graph_loads_nothing_heavy() -> None:
    code = (
        "import sys, kernelblaster.graph.optimize, kernelblaster.cli.app;"
        "print([m for m in ('torch', 'chromadb', 'langchain_openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_packages_are_listed_for_installation() -> None:
    import tomllib

    listed = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    present = {
        ".".join(("kernelblaster", *path.parent.relative_to(ROOT).parts))
        for path in SOURCES
        if path.name == "__init__.py"
    }
    assert listed == present
