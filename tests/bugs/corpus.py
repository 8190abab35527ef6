"""Reads the corpus of seeded bugs: kernels with a launch description, and whole candidates.

A file opens with a comment, `// One sentence.`, then `// key: value` lines:

    // report: race                     the kind of report that must come
    // launch: sums<<<4, 256, SHARED>>>(in float[4096], out float[4], 1024)

`in` buffers hold data, `zero` ones zeros, `out` ones nothing; `null` is a null pointer; a number is
an `int`. Candidates name a task of ../exploits/tasks instead of a launch. Compiled with FIXED
defined, the file is the clean twin. Every line that a report may name ends in `// BUG`.

All kernels and their twins are one compilation unit, each in a namespace of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import computed_field

from kernelblaster.harness.records.record import Record

FOLDER = Path(__file__).resolve().parent
_LAUNCH = re.compile(r"(\w+)<<<(.+)>>>\((.*)\)")
_BUFFER = re.compile(r"(in|out|zero) (\w+)\[(\d+)\]")
_TYPES = {"float": np.float32, "int": np.int32, "unsigned": np.uint32, "half": np.float16}


class Bug(Record):
    """One file of the corpus: a bug, and its clean twin."""

    name: str
    what: str
    """The first line: what is wrong."""
    report: str
    """Kind of report that must come."""
    launch: str = ""
    task: str = ""
    source: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lines(self) -> frozenset[int]:
        """Return the 1-based lines that a report may name."""
        lines = enumerate(self.source.split("\n"), 1)
        return frozenset(number for number, line in lines if line.endswith("// BUG"))


class Launch(Record):
    """A launch description, read."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[str, ...]

    def values(self) -> list[object]:
        """Return the arguments for `simt_support.execute`: arrays of fixed pseudo-random data."""
        generator = np.random.default_rng(7)
        return [_value(argument, generator) for argument in self.arguments]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the buffers that hold nothing yet."""
        return tuple(at for at, text in enumerate(self.arguments) if text.startswith("out "))


def _value(text: str, generator: np.random.Generator) -> object:
    if text == "null":
        return np.uint64(0)
    found = _BUFFER.fullmatch(text)
    if not found:
        return int(text)
    kind, size = _TYPES[found[2]], int(found[3])
    values: NDArray[np.generic] = np.zeros(size, kind)
    if found[1] == "in":
        integer = np.issubdtype(kind, np.integer)
        values = (generator.integers(0, 1000, size) if integer else
                  generator.standard_normal(size)).astype(kind)  # fmt: skip
    return values


def read(path: Path) -> Bug:
    """Read one file. Raises ValueError that names the file and what is wrong with its header."""
    text = path.read_text(encoding="utf-8")
    what, *rest = text.split("\n")
    if not re.fullmatch(r"// [A-Z].*\.", what):
        raise ValueError(f"{path.name}: the first line is not `// One sentence.`")
    values = {}
    for line in rest:
        found = re.fullmatch(r"// (report|launch|task): (\S.*)", line)
        if not found:
            break
        values[found[1]] = found[2]
    if "report" not in values or ("launch" in values) == ("task" in values):
        raise ValueError(f"{path.name}: `report`, and either `launch` or `task`, must be given")
    if "FIXED" not in text:
        raise ValueError(f"{path.name}: there is no twin: nothing asks for FIXED")
    return Bug(name=path.stem, what=what.removeprefix("// "), source=text, **values)


def read_all(kind: str) -> tuple[Bug, ...]:
    """Read `kernels` or `candidates`, by name. Raises ValueError as `read`."""
    return tuple(read(path) for path in sorted((FOLDER / kind).glob("*.cu")))


def launch_of(bug: Bug) -> Launch:
    """Read a kernel's launch description. Raises ValueError."""
    found = _LAUNCH.fullmatch(bug.launch)
    if not found:
        raise ValueError(f"{bug.name}: the launch is not `kernel<<<grid, block>>>(arguments)`")
    parts = re.findall(r"\([^)]*\)|\d+", found[2])
    grid, block, *shared = parts
    return Launch(
        kernel=found[1], grid=_shape(grid), block=_shape(block),
        shared=int(shared[0]) if shared else 0,
        arguments=tuple(x.strip() for x in found[3].split(",")),
    )  # fmt: skip


def _shape(text: str) -> tuple[int, int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    x, y, z = (numbers + [1, 1])[:3]
    return x, y, z


def one_unit(bugs: tuple[Bug, ...]) -> tuple[str, dict[str, int]]:
    """Return all bugs and twins as one text, and the line before the first of each.

    Bug NAME is in namespace `bug_NAME`, its twin in `twin_NAME`.
    """
    includes = sorted({line for bug in bugs for line in bug.source.split("\n")
                       if line.startswith("#include")})  # fmt: skip
    lines, before = includes, {}
    for bug in bugs:
        for side, word in (("bug", "#undef"), ("twin", "#define")):
            lines = [*lines, f"{word} FIXED", "#undef STEP", f"namespace {side}_{bug.name} {{"]
            before[f"{side}_{bug.name}"] = len(lines)
            body = (("" if x.startswith("#include") else x) for x in bug.source.split("\n"))
            lines = [*lines, *body, "}"]
    return "\n".join(lines) + "\n", before
