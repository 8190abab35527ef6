"""The house stands on floors and in rooms: an import never points up, nothing heavy loads alone."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelblaster

ROOT = Path(kernelblaster.__file__).resolve().parent
AGENTS = (
    "state_extractor", "state_selector", "optimization_proposer", "optimization_selector",
    "kernel_writer", "initial_cuda", "soft_verifier", "policy_evaluation", "gap_analysis",
    "parameter_update", "coder", "judge",
)  # fmt: skip
ORDER: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "": (
        "harness", "memory", "tools", "settings", "nodes", "graph", "bench", "reports", "cli",
        ("__main__",),
    ),
    "harness": (
        ("records", "errors", "files", "gpus"), ("occupancy", "bound"), "metrics", "process",
        "isolation", "vetting", "build", "task", "suites", "judge", "host", "reference", "nsight",
        ("simt", "cuda"), "devices", "jobs", "doctor",
    ),
    "harness/devices/simulated": ("runs", ("full_dimensions", "time_taken"), "device"),
    "harness/records": (
        ("rooms", "record", "identity", "versions", "outcomes"),
        "parts",
        ("tensors", "programs", "variations", "readings", "builds", "timings"),
        ("tasks", "profiles"), "evaluations",
    ),
    "harness/reference": (
        "loading", ("drawing", "precision", "sizes", "exported"), "cases", "child",
    ),
    "harness/reference/cases": (
        ("case", "passed_on"),
        ("chance", "comparisons", "ends", "epsilon", "constancy", "constants", "oddities",
         "trained"),
        "named", ("exploration", "mutants", "proof"),
        "distributions", ("claimed", "full_case"),
    ),
    "harness/cuda": (("reports", "present_gpus", "gpu_lock"), "launching", ("worker", "parent")),
    "harness/simt": (
        "counters", "ptx", "decode", "run", "sass", "model", "sample",
        ("child", "worker"),
    ),
    "harness/simt/sample": (
        "instructions", "blocks", ("traffic", "outputs"), ("put_together", "repeats"),
        "whole_grid", "sampling", ("profile_run", "wide_run"),
    ),
    "memory": (("records", "database", "locations"), ("run", "knowledge")),
    "memory/knowledge": (
        ("directory", "journal", "kernels"), "retrieval", "states", "seed", "policy", "snapshots",
        ("entries", "overview"), "knowledge_base", ("ablation", "changes", "exchange"),
    ),
    "memory/knowledge/states": (
        "measures", "dimensions", "signature", ("distances", "conditions"), "matching",
    ),
    "tools": (
        ("progress", "waiting"), "models", "rewriting", "techniques", "first_kernel", "solutions",
        "wording", "evaluation", "exporting", "workspace", "for_agents",
    ),
    "tools/rewriting": ("records", "source", "kernels", ("rewrite", "target")),
    "tools/first_kernel": ("program", ("kernels", "stages"), "operators", "general", "writer"),
    "nodes": ("records", "common", AGENTS, "run"),
    "nodes/common": (
        ("workspaces", "randomness", "policies", "replies", "ties"), "prompts", "history",
        "outlook", "stopping", "asking",
    ),
    "nodes/run": (("beginning", "search", "approval"), "ending", "reading"),
    "graph": (
        "channels", "state", "compiling", "first_kernel", "lowering", "rollout", "frame",
        "optimize", "rounds", "policies", "served", "checkpoints", "session", "embedding",
        "agent_tools",
    ),
    "bench": (
        ("records", "markdown_parts"), "variants", "planning", "directory", "results", "one_run",
        "crew", "running", "claims", "rerun", "worker",
    ),
    "reports": (
        ("words", "diffs"), ("reading", "roofline"), ("profiles", "summary", "analyses"), "plots",
        "page", ("run_page", "together", "markdown", "csv_tables", "comparison", "watching"),
        ("runs_page", "suite_comparison"), "suite_page",
    ),
}  # fmt: skip
"""Of each folder with an order: its rooms from the ground up. Rooms in brackets stand on one floor;
of the agents, and of the rooms of memory, none imports another; nor do reports the graphs."""
APART = {
    "": ("graph", "reports"), "nodes": AGENTS, "memory": ("run", "knowledge"),
    "harness": ("simt", "cuda"), "harness/cuda": ("worker", "parent"),
    "nodes/run": ("beginning", "search", "approval"),
}  # fmt: skip
FACE = {"__init__.py", "__main__.py", "settings.py"}
FLOORS = ("harness", "memory", "tools", "nodes", "graph", "bench", "reports", "cli")
SOURCES = sorted(
    path
    for floor in (*FLOORS, "")
    for path in ((ROOT / floor).rglob("*.py") if floor else ROOT.glob("*.py"))
)
FOLDERS = sorted({path.parent for path in SOURCES})
in_every_folder = pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT))
)
"""One test for all modules of a folder: a test for each of them took longer to begin than to do."""


def modules_of(folder: Path) -> list[Path]:
    return [path for path in SOURCES if path.parent == folder]


def floor_of(folder: str, room: str) -> int:
    """Return the index of the floor of `folder` on which one of its rooms stands."""
    for index, rooms in enumerate(ORDER[folder]):
        if room == rooms or (isinstance(rooms, tuple) and room in rooms):
            return index
    raise AssertionError(f"the order of {folder or 'the package'} does not name its room {room}")


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a file's syntax tree, its module first."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path: Path) -> list[tuple[str, ...]]:
    """Return the modules of this package that a file imports, as parts below the package."""
    here = path.relative_to(ROOT).parts
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            module = (*base, *(node.module or "").split("."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelblaster"):
            module = tuple((node.module or "").split(".")[1:])
        else:
            continue
        module = tuple(part for part in module if part)
        for name in node.names:  # A module may be imported as a name of its folder.
            inner = ROOT.joinpath(*module, name.name)
            named = inner.with_suffix(".py").is_file() or (inner / "__init__.py").is_file()
            found.append((*module, name.name) if named else module)
    return found


def test_every_floor_has_modules() -> None:
    assert len(SOURCES) > 50


@in_every_folder
def test_no_import_points_up(folder: Path) -> None:
    for path in modules_of(folder):
        own = path.relative_to(ROOT).with_suffix("").parts
        if own == ("__init__",):
            continue
        for other in imported(path):
            _require_no_way_up(path, own, other)


def _require_no_way_up(path: Path, own: tuple[str, ...], other: tuple[str, ...]) -> None:
    if not other:
        return
    shared = 0
    while shared < min(len(own), len(other)) - 1 and own[shared] == other[shared]:
        shared += 1
    folder = "/".join(own[:shared])
    if folder not in ORDER or own[shared] == other[shared] or own[shared] == "__init__":
        return
    mine, theirs = floor_of(folder, own[shared]), floor_of(folder, other[shared])
    assert theirs <= mine, f"{path} imports {'.'.join(other)}"
    apart = APART.get(folder, ())
    assert not {own[shared], other[shared]} <= set(apart), f"{path} imports {'.'.join(other)}"


def test_records_import_nothing_of_the_house() -> None:
    assert imported(ROOT / "harness" / "errors.py") == []
    for path in (ROOT / "harness" / "records").glob("*.py"):
        assert all(other[:2] == ("harness", "records") for other in imported(path)), path


def test_no_module_is_its_own_ancestor() -> None:
    graph = {
        path.relative_to(ROOT).with_suffix("").parts: set(imported(path)) for path in SOURCES
    }
    done: set[tuple[str, ...]] = set()

    def visit(module: tuple[str, ...], way: tuple[tuple[str, ...], ...]) -> None:
        assert module not in way, " -> ".join(".".join(part) for part in (*way, module))
        if module in done:
            return
        for other in graph.get(module, ()):
            visit(other, (*way, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@in_every_folder
def test_modules_say_why_they_exist_and_import_relatively(folder: Path) -> None:
    for path in modules_of(folder):
        module = nodes_of(path)[0]
        assert isinstance(module, ast.Module)
        first = (ast.get_docstring(module) or "").split("\n")[0]
        assert first.endswith("."), f"{path} opens without one sentence"
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and not node.level and path.name != "__init__.py":
                assert not (node.module or "").startswith("kernelblaster"), path
            if isinstance(node, ast.Import):
                assert not any(item.name.startswith("kernelblaster") for item in node.names), path


@pytest.mark.parametrize("floor", ["harness", "memory", "nodes"])
def test_records_are_imported_from_their_modules(floor: str) -> None:
    """The room itself answers to checkpoints alone."""
    askers = {path for path in SOURCES if (floor, "records") in imported(path)}
    assert askers == {ROOT / "graph" / "checkpoints.py"}


def test_only_the_face_lives_in_the_root() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == FACE


def test_importing_the_graph_loads_nothing_heavy() -> None:
    """Nor do commands that run no graph load what graphs are made of."""
    code = (
        "import sys, kernelblaster.cli.app, kernelblaster.cli.showing.tables;"
        "import kernelblaster.tools.evaluation.file, kernelblaster.nodes.run.reading.overview;"
        "print([m for m in ('langgraph', 'langchain_core') if m in sys.modules]);"
        "import kernelblaster.graph.optimize;"
        "print([m for m in ('torch', 'chromadb', 'langchain_openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_packages_are_listed_for_installation() -> None:
    listed = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )
    present = {
        ".".join(("kernelblaster", *path.parent.relative_to(ROOT).parts))
        for path in SOURCES
        if path.name == "__init__.py"
    }
    assert listed == present
