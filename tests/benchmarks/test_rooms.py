"""Each script of the benchmarks stands in a room, runs from there, and is told by its place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from places import ROOT

BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*/*.py") if path.parent.name != "ground_truth")
NAMED = re.compile(r"(?<![\w./-])benchmarks/[\w/]+\.py\b")
TEXTS = (".py", ".md", ".txt", ".json", ".tsv", ".toml")


def test_one_script_makes_all_and_each_other_has_a_room() -> None:
    assert {path.name for path in BENCHMARKS.glob("*.py")} == {"remake_results.py"}
    assert len({path.name for path in SCRIPTS}) == len(SCRIPTS) > 40


def test_a_script_imports_none_of_another_room() -> None:
    """Python looks for a script's imports beside it."""
    rooms = {path.stem: path.parent for path in SCRIPTS}
    for path in SCRIPTS:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                assert rooms.get(module or "", path.parent) == path.parent, f"{path}: {module}"


def test_what_results_and_code_name_is_there() -> None:
    told: dict[str, Path] = {}
    for folder in ("benchmarks", "harness", "memory", "nodes", "tests", "tools"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in TEXTS and path.is_file():
                told |= dict.fromkeys(NAMED.findall(path.read_text()), path)
    assert len(told) > 40
    assert not {name: path for name, path in told.items() if not (ROOT / name).exists()}
