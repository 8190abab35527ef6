"""Changes the judge in one place at a time and asks its tests: how many changes do they notice?

    KERNELBLASTER_CACHE=FOLDER
    python benchmarks/judge/mutate_judge.py [--mutants 200] [--seed 0] [--jobs 1] [--only host/]
                                      [--seconds 120] [--dear 20] [--map FILE] [--known FILE]
                                      [--again] [--report] [-o RESULT]

A mutant is one operator, constant or condition of a module of FOLDERS, replaced. First every test
of TESTS runs once and the lines of those modules that it runs are noted (kept in the file --map).
A mutant is then asked of the tests that run its statement, those of its own folder before others,
the quick ones first, as many as fit into --seconds; it is killed where one fails or does not end in
time. Mutants are drawn evenly over the modules, from those whose tests take at most --dear seconds
together, and a tenth as many from the others. Outcomes are kept in the file --known: a run that was
cut short goes on, and --again asks the tests of those that survived anew. Survivors are printed
with place and change: each is a gap in the tests, or a change that means nothing. Files are never
changed in place, but in copies.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import numpy
import pydantic
import pytest
import pytest_asyncio
import torch
import xdist

THIRD_PARTY = (hypothesis, numpy, pydantic, pytest_asyncio, torch, xdist)
"""Loaded once: each try is a fork of a process that has them."""
ROOT = Path(__file__).resolve().parents[2]
KILLED, SURVIVED, NOT_RUN = "killed", "survived", "no test runs it"
FOLDERS = ("harness/judge", "harness/host", "harness/vetting", "harness/reference")
TESTS = (
    *(f"tests/{folder}" for folder in FOLDERS),
    "tests/harness/cuda/worker/test_parts.py", "tests/harness/cuda/worker/test_constants.py",
    "tests/harness/devices", "tests/harness/build/test_compiling.py",
    "tests/harness/task/test_loading.py",
)  # fmt: skip
_IN_CHILDREN = {
    "harness/reference/": (
        "tests/harness/reference/cases/test_mutants.py",
        "tests/harness/task/test_loading.py",
    ),
    "harness/host/": ("tests/harness/host/test_planning.py",),
    "harness/vetting/": ("tests/harness/vetting/", "tests/harness/build/test_compiling.py"),
}
"""Tests of what runs in processes that tests start, where the lines are not noted."""
_KEPT = {"harness/judge": ("*",), "harness/host": ("*",)}
"""What of the cache mutants of a folder may find. Those of other folders make what lies there (the
answers of references, what is refused in builds): they find the compiled core alone."""
BUSY = 10
"""How much longer than processor time a try may take by the clock."""
_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
            ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
            ast.NotIn: ast.In}  # fmt: skip
_BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
           ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change."""

    module: str
    line: int
    first: int
    last: int
    """Lines of the statement around it, without what is nested in it."""
    before: str
    after: str
    number: int
    """Among all of its module."""

    @functools.cached_property
    def source(self) -> str:
        """The module's text with the change."""
        tree = ast.parse((ROOT / self.module).read_text(encoding="utf-8"))
        node, changed, _ = next(itertools.islice(_places(tree), self.number, None))

        class Replace(ast.NodeTransformer):
            def visit(self, each: ast.AST) -> ast.AST:
                return changed if each is node else self.generic_visit(each)

        ast.copy_location(changed, node)
        return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))

    @property
    def identity(self) -> str:
        """What tells it from every other, and from the same of another module's text."""
        return hashlib.sha256(f"{self.module}\n{self.source}".encode()).hexdigest()


@dataclass(frozen=True)
class Test:
    """What one test took, and what it ran."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]
    """By module."""


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every change of a module, outside of what is run at import and of types."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    for number, (node, changed, span) in enumerate(_places(tree)):
        before = ast.unparse(node.test if isinstance(node, ast.If) else node)
        after = ast.unparse(changed.test if isinstance(changed, ast.If) else changed)
        line = getattr(node, "lineno", 0)
        yield Mutant(module, line, *span, before[:60], after[:60], number)


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, tuple[int, int]]]:
    """Yield each node with what takes its place, and the lines of the statement around it."""
    seen: set[int] = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for statement in _statements(function):
            body = getattr(statement, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno
            span = (statement.lineno, max(statement.lineno, last or 0))
            for node in _own_nodes(statement):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield from ((node, changed, span) for changed in _changes(node))


def _statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for statement in function.body:
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.stmt))


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement and its expressions, without types and the statements nested in it."""
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop(0)
        yield node
        of_type = getattr(node, "annotation", None)
        left += [
            each for each in ast.iter_child_nodes(node)
            if not isinstance(each, ast.stmt) and each is not of_type
        ]  # fmt: skip


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        changed = copy.deepcopy(node)
        changed.ops[0] = _COMPARE[type(node.ops[0])]()
        yield changed
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        changed_sum = copy.deepcopy(node)
        changed_sum.op = _BINARY[type(node.op)]()
        yield changed_sum
    elif isinstance(node, ast.BoolOp):
        changed_bool = copy.deepcopy(node)
        changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed_bool
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.If):
        changed_if = copy.deepcopy(node)
        changed_if.test = ast.UnaryOp(ast.Not(), changed_if.test)
        yield changed_if
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield ast.Constant(value)


class LinesOfTests:
    """A plugin of pytest that notes which lines of the judge each test runs.

    What runs while a test is set up counts for every test of its file, as they share fixtures.
    Processes that a test starts are not looked into.
    """

    def __init__(self, package: Path) -> None:
        self._modules = {
            str(path): str(path.relative_to(package))
            for folder in FOLDERS
            for path in (package / folder).rglob("*.py")
        }
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._of_setup: dict[str, dict[str, set[int]]] = {}
        self._tests: dict[str, dict[str, Any]] = {}

    @property
    def tests(self) -> list[dict[str, Any]]:
        """Those that passed, as JSON."""
        found = []
        for name, test in self._tests.items():
            lines: dict[str, set[int]] = defaultdict(set)
            for part in (test["lines"], self._of_setup.get(name.partition("::")[0], {})):
                for module, its in part.items():
                    lines[module] |= its
            known = {module: sorted(its) for module, its in lines.items()}
            found.append({"name": name, "seconds": test["seconds"], "lines": known})
        return found

    def pytest_sessionstart(self) -> None:
        """Watch every line of the judge from here on."""
        threading.settrace(self._entered)
        sys.settrace(self._entered)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what ran for the phase that this reports."""
        lines, self._lines = self._lines, defaultdict(set)
        if report.when == "setup":
            shared = self._of_setup.setdefault(report.nodeid.partition("::")[0], {})
            for module, its in lines.items():
                shared.setdefault(module, set()).update(its)
        elif report.when == "call" and report.passed:
            self._tests[report.nodeid] = {"seconds": report.duration, "lines": lines}

    def _entered(self, frame: FrameType, event: str, argument: object) -> Any:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        lines = self._lines[module]

        def ran(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return ran

        return ran


def _copied(place: Path) -> Path:
    """Return a copy of the package in a folder, compiled."""
    package = place / "kernelblaster"
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns(".*", "__pycache__", "results"))
    compileall.compile_dir(package, quiet=1)
    return package


def _cache_of(module: str, place: Path) -> Path:
    """Return a cache of its own for a mutant, with links to what it may find there."""
    cache = place / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    for kept in _KEPT.get(str(Path(module).parent), ("native",)):
        for source in Path(os.environ["KERNELBLASTER_CACHE"]).glob(kept):
            shutil.copytree(source, cache / source.name, copy_function=os.link)
    return cache


def _require_copies_are_used(folder: Path) -> None:
    """End where processes that tests start would import another package than the copy."""
    package = folder / "kernelblaster"
    package.mkdir()
    (package / "__init__.py").touch()
    asked = [sys.executable, "-P", "-c", "import kernelblaster; print(kernelblaster.__file__)"]
    told = subprocess.run(
        asked, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip
    if Path(told.stdout.strip()) != package / "__init__.py":
        sys.exit(
            f"{sys.executable} imports {told.stdout.strip()}, not the mutated copy: use an "
            "environment without kernelblaster, or with it installed as usual"
        )


def _pytest(package: Path, arguments: Sequence[str], plugins: Sequence[object] = ()) -> int:
    """Run pytest on a copy, in this process."""
    # A mutant of the same size and second as another must not be taken for it.
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(package.parent))
    os.chdir(package)
    unused = ("cacheprovider", "langsmith_plugin", "anyio")
    options = ["-q", "-n0", *(f"-pno:{name}" for name in unused)]
    return int(pytest.main([*options, *arguments], plugins=list(plugins)))


def map_tests(path: Path) -> list[Test]:
    """Return what each test runs, from a file, or from a run that fills it."""
    if not path.is_file():
        with tempfile.TemporaryDirectory(prefix="mutants-") as work:
            package = _copied(Path(work))
            child = os.fork()
            if not child:
                plugin = LinesOfTests(package)
                _pytest(package, TESTS, [plugin])
                path.write_text(json.dumps(plugin.tests), encoding="utf-8")
                os._exit(0)
            os.waitpid(child, 0)
    return [
        Test(each["name"], each["seconds"],
             {module: frozenset(lines) for module, lines in each["lines"].items()})
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]  # fmt: skip


def tests_of(mutant: Mutant, tests: Sequence[Test]) -> list[Test]:
    """Return the tests that run a mutant's statement, the quickest first."""
    span = range(mutant.first, mutant.last + 1)
    found = [
        each for each in tests if not each.lines.get(mutant.module, frozenset()).isdisjoint(span)
    ]
    if not found:
        places = tuple(
            place for start, its in _IN_CHILDREN.items() if mutant.module.startswith(start)
            for place in its
        )  # fmt: skip
        found = [each for each in tests if each.name.startswith(places)] if places else []
    return sorted(found, key=lambda each: each.seconds)


def choose(
    every: Sequence[Mutant], tests: Sequence[Test], count: int, dear: float, seed: int
) -> list[Mutant]:
    """Draw mutants: evenly over the modules, a tenth of them where the tests are dear."""
    quick: dict[str, list[Mutant]] = defaultdict(list)
    slow: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in random.Random(seed).sample(every, len(every)):
        cost = sum(test.seconds for test in tests_of(mutant, tests))
        (quick if cost <= dear else slow)[mutant.module].append(mutant)
    of_dear = min(count // 10, sum(map(len, slow.values())))
    return [*_in_turn(quick, count - of_dear), *_in_turn(slow, of_dear)]


def _in_turn(by_module: dict[str, list[Mutant]], count: int) -> list[Mutant]:
    rounds = range(max(map(len, by_module.values()), default=0))
    drawn = [its[at] for at in rounds for _, its in sorted(by_module.items()) if at < len(its)]
    return drawn[:count]


def survives(mutant: Mutant, package: Path, names: Sequence[str], seconds: float) -> bool:
    """Say whether all tests pass with the change in a copy of the package.

    A process that uses more than `seconds` of processor time fails them.
    Nothing of the cache that a mutant leaves is found by another.
    """
    if not names:
        return True
    target = package / mutant.module
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.source, encoding="utf-8")
    cache = _cache_of(mutant.module, package.parent)
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["KERNELBLASTER_CACHE"] = str(cache)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        # The machine's load makes nobody slow; the hard limit stays, for what tests limit.
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), hard))
        os._exit(_pytest(package, ["-x", *names]))
    try:
        end = time.monotonic() + BUSY * seconds
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status == 0
            time.sleep(0.05)
        print(f"not ended in time: {mutant.module}:{mutant.line}", file=sys.stderr, flush=True)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False
    finally:
        target.write_text(original, encoding="utf-8")


def _try_all(
    work: Path, chosen: Sequence[Mutant], tests: Sequence[Test], seconds: float, results: Any
) -> None:
    """Try mutants one after the other in a copy of its own."""
    package = _copied(work)
    for mutant in chosen:
        names, spent = [], 0.0
        for test in tests_of(mutant, tests):
            spent += test.seconds
            if spent > seconds:
                break
            names.append(test.name)
        mirror = f"tests/{Path(mutant.module).parent}/"
        near = [name for name in names if name.startswith(mirror)]
        far = [name for name in names if not name.startswith(mirror)]
        alive = all(survives(mutant, package, part, 60 + 4 * seconds) for part in (near, far))
        results.put((mutant, alive, len(names)))


def _told(mutant: Mutant, known: Mapping[str, str]) -> str:
    change = f"{mutant.before}  ->  {mutant.after}"
    return f"{mutant.module}:{mutant.line}: {change}  ({known[mutant.identity]})"


def main() -> None:
    """Draw mutants, try them, print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--dear", type=float, default=20.0)
    parser.add_argument("--only", default="", help="part of a module's path")
    parser.add_argument("--map", type=Path, default=Path("lines_of_tests.json"))
    parser.add_argument("--known", type=Path, default=Path("outcomes_of_mutants.txt"))
    parser.add_argument("--again", action="store_true", help="try again what survived")
    parser.add_argument("--report", action="store_true", help="of those in --known; try none")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if not os.environ.get("KERNELBLASTER_CACHE"):
        parser.error("set KERNELBLASTER_CACHE to a folder that nobody else uses")
    tests = map_tests(arguments.map.resolve())
    modules = sorted(
        str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    )
    every = [m for module in modules if arguments.only in module for m in mutants_of(module)]
    chosen = choose(every, tests, arguments.mutants, arguments.dear, arguments.seed)
    known: dict[str, str] = {}
    if arguments.known.is_file():
        rows = arguments.known.read_text(encoding="ascii").splitlines()
        known = dict(row.split(" ", 1) for row in rows)
    if arguments.report:
        chosen = [mutant for mutant in chosen if mutant.identity in known]
    done = {KILLED} if arguments.again else {KILLED, SURVIVED, NOT_RUN}
    left = [mutant for mutant in chosen if known.get(mutant.identity) not in done]
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        _require_copies_are_used(Path(work))
    forked = multiprocessing.get_context("fork")
    # Its writer is no thread: what is forked while a thread holds a lock would wait for ever.
    results = forked.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        for number in range(arguments.jobs):
            part = left[number :: arguments.jobs]
            place = Path(work, str(number))
            forked.Process(
                target=_try_all, args=(place, part, tests, arguments.seconds, results), daemon=False
            ).start()
        for number in range(len(left)):
            mutant, alive, asked = results.get()
            known[mutant.identity] = (SURVIVED if asked else NOT_RUN) if alive else KILLED
            with arguments.known.open("a", encoding="ascii") as file:
                file.write(f"{mutant.identity} {known[mutant.identity]}\n")
            print(f"{number + 1} of {len(left)}: {_told(mutant, known)}", flush=True)
    tried = Counter(mutant.module for mutant in chosen)
    lost = [mutant for mutant in chosen if known[mutant.identity] != KILLED]
    survivors = Counter(mutant.module for mutant in lost)
    table = [f"{tried[m] - survivors[m]:4d} of {tried[m]:4d} killed  {m}" for m in sorted(tried)]
    total = f"{len(chosen) - len(lost):4d} of {len(chosen):4d} killed of {len(every)} possible"
    lines = [_told(mutant, known) for mutant in lost]
    text = "\n".join([*table, total, "", "survivors:", *sorted(lines)]) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
