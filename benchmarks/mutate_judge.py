"""Changes the judge in one place at a time and asks its tests: how many changes do they notice?

    python benchmarks/mutate_judge.py [--mutants 200] [--seed 0] [--jobs 2] [--seconds 120]
                                      [-o benchmarks/results/mutants_of_the_judge.txt]

A mutant is one operator, constant or condition of a module of MODULES, replaced. It is killed where
one of the tests named beside the module fails, or does not end in time. Survivors are printed with
their place and change: each is a gap in the tests, or a change that means nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JUDGE, VETTING = "tests/harness/judge", "tests/harness/vetting"
DEVICES = "tests/harness/devices"
MODULES: dict[str, tuple[str, ...]] = {
    "harness/judge/border.py": (JUDGE,),
    "harness/judge/findings.py": (JUDGE, DEVICES),
    "harness/judge/full_size.py": (f"{DEVICES}/test_full_dimensions.py",
                                   f"{DEVICES}/test_simulated_cheats.py"),
    "harness/judge/run_verdict.py": (JUDGE, DEVICES),
    "harness/judge/tensor_comparison.py": (JUDGE, "tests/harness/cuda/test_parts.py"),
    "harness/judge/timing.py": (JUDGE,),
    "harness/judge/verification.py": (JUDGE, "tests/harness/cuda/test_parts.py"),
    "harness/judge/written_sizes.py": (DEVICES,),
    "harness/host/checks.py": ("tests/harness/host",),
    "harness/host/planning.py": ("tests/harness/host",),
    "harness/vetting/clock_flow.py": (f"{VETTING}/test_device_rules.py",),
    "harness/vetting/device_rules.py": (f"{VETTING}/test_device_rules.py",),
    "harness/vetting/host_object.py": (f"{VETTING}/test_host_object.py",),
    "harness/vetting/symbols.py": (f"{VETTING}/test_symbols.py",),
    "harness/reference/tolerances.py": ("tests/harness/reference",),
    "harness/reference/proof.py": ("tests/harness/reference",),
}
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
    before: str
    after: str
    source: str


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every change of a module, outside of what is run at import for types and texts."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    seen: set[int] = set()
    for function in functions:
        for statement in function.body:
            for node in ast.walk(statement):
                if id(node) in seen:
                    continue
                seen.add(id(node))
                for changed in _changes(node):
                    yield _mutant(module, tree, node, changed)


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


def _mutant(module: str, tree: ast.Module, node: ast.AST, changed: ast.AST) -> Mutant:
    class Replace(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            return changed if each is node else self.generic_visit(each)

    # The transformer changes in place: the tree is put back by the same way round.
    before = ast.unparse(node.test if isinstance(node, ast.If) else node)
    after = ast.unparse(changed.test if isinstance(changed, ast.If) else changed)
    ast.copy_location(changed, node)
    Replace().visit(tree)
    source = ast.unparse(ast.fix_missing_locations(tree))

    class Restore(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            return node if each is changed else self.generic_visit(each)

    Restore().visit(tree)
    return Mutant(module, getattr(node, "lineno", 0), before[:60], after[:60], source)


def survives(mutant: Mutant, copy_of_tree: Path, seconds: float) -> bool:
    """Say whether all tests pass with the change in a copy of the package."""
    target = copy_of_tree / "kernelblaster" / mutant.module
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.source, encoding="utf-8")
    environment = dict(os.environ) | {"PYTHONPATH": str(copy_of_tree)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider",
               *MODULES[mutant.module]]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=copy_of_tree / "kernelblaster", env=environment, timeout=seconds,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(original, encoding="utf-8")


def main() -> None:
    """Draw mutants, try them, print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", default="", help="part of a module's path")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    every = [m for module in MODULES if arguments.only in module for m in mutants_of(module)]
    random.Random(arguments.seed).shuffle(every)
    chosen = every[: arguments.mutants]
    lines: list[str] = []
    tried, killed = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        copies = []
        for number in range(arguments.jobs):
            place = Path(work, str(number))
            shutil.copytree(ROOT, place / "kernelblaster", ignore=shutil.ignore_patterns(
                ".*", "__pycache__", "results"))  # fmt: skip
            copies.append(place)

        def run(number: int) -> None:
            for mutant in chosen[number :: arguments.jobs]:
                alive = survives(mutant, copies[number], arguments.seconds)
                tried[mutant.module] += 1
                killed[mutant.module] += not alive
                if alive:
                    told = f"{mutant.module}:{mutant.line}: {mutant.before}  ->  {mutant.after}"
                    lines.append(told)
                    print(told, flush=True)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(run, range(arguments.jobs)))
    table = [f"{killed[m]:4d} of {tried[m]:4d} killed  {m}" for m in MODULES if tried[m]]
    total = f"{sum(killed.values()):4d} of {sum(tried.values()):4d} killed of {len(every)} possible"
    text = "\n".join([*table, total, "", "survivors:", *sorted(lines)]) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
