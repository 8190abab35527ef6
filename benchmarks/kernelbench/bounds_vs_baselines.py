"""The speed of light of KernelBench's problems beside PyTorch's times, FLOPs and bytes on an H200.

    python benchmarks/kernelbench/bounds_vs_baselines.py --kernelbench DIR --baselines FILE \
        [--keep DIR]

FILE: {"level1/1_NAME.py": {"eager_ms", "compile_ms", "flops", "bytes"}, ...}, FLOPs by PyTorch's
counter, bytes of inputs, parameters and outputs once. Programs are exported from tensors without
memory, each in a process of its own (two need einops); --keep has them kept for another run.
The table names problems by their numbers; a problem's text is read where it lies.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import math
import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelblaster.harness.bound.speed_of_light import SpeedOfLight, speed_of_light
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.records.programs import Program
from kernelblaster.harness.records.readings import Reading
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.task.kernelbench import kernelbench_files

RESULT = Path(__file__).resolve().parents[1] / "results" / "bounds_vs_baselines.md"
MOST_BYTES = 5 << 30
"""Of memory that a process may take which exports a program."""
CLASSES = {
    "same": "both figures are PyTorch's within half a per cent",
    "padding": "taps that lie on padding, and results that a window cuts off, are not counted",
    "part": "a part is not needed: what a triangle or a mask leaves out, rows that nobody takes",
    "recurrent": "PyTorch's counter does not see into recurrent layers; here every step counts",
    "order": "an einsum of several factors, counted in its cheapest order",
    "cut": "bytes of inputs that nothing reads: windows that jump or end early, rows not taken",
    "kept": "bytes of buffers that the outputs depend on, or that they do not",
}


@dataclass(frozen=True)
class Row:
    """One problem: ours beside theirs."""

    place: tuple[int, int]
    bound: SpeedOfLight
    flops: int
    """Theirs."""
    nbytes: int
    """Theirs."""
    eager_us: float
    compile_us: float

    @property
    def products(self) -> int:
        """Operations of what their counter counts."""
        return sum(n for kind, n in self.bound.operations.items() if kind != "element")

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.bound.bytes_read + self.bound.bytes_written

    @property
    def fastest_us(self) -> float:
        """Of the two times that were measured."""
        return min(self.eager_us, self.compile_us)

    @property
    def classes(self) -> tuple[str, ...]:
        """Why the figures differ where they do."""
        found = []
        kinds = self.bound.operations
        if not _near(self.products, self.flops):
            if "recurrence" in kinds and self.products > self.flops:
                found.append("recurrent")
            elif self.products > self.flops:
                found.append("order")
            elif set(kinds) <= {"convolution", "element", "matrix product"} and kinds.get(
                "convolution", 0
            ) > self.products / 2:
                found.append("padding")
            else:
                found.append("part")
        if not _near(self.moved, self.nbytes):
            found.append("cut" if self.moved < 0.98 * self.nbytes else "kept")
        return tuple(found) or ("same",)


def main() -> int:
    """Compare, and write the table; 1 where a bound is above a time that was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout")
    parser.add_argument("--baselines", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="folder for exported programs")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    baselines = json.loads(asked.baselines.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows, failures = [], []
        for path in kernelbench_files(asked.kernelbench, None, None):
            place = (int(path.parent.name[-1]), int(path.name.split("_")[0]))
            said = exported(path, folder / f"level{place[0]}_{place[1]}.json")
            if said.get("program") is None:
                failures.append((place, said.get("why", "")))
                continue
            known = baselines[f"{path.parent.name}/{path.name}"]
            rows.append(Row(
                place, speed_of_light(task_of(said), find_gpu("H200")), known["flops"],
                known["bytes"], 1e3 * known["eager_ms"], 1e3 * known["compile_ms"],
            ))  # fmt: skip
    asked.out.write_text("\n".join(table(rows, failures)) + "\n", encoding="utf-8")
    above = [row for row in rows if row.bound.microseconds > row.fastest_us]
    uncounted = [row for row in rows if not row.bound.known]
    print(
        f"{len(rows)} problems, {len(above)} bounds above a measured time, {len(failures)} without "
        f"a program, {len(uncounted)} whose program could not be counted: {asked.out}"
    )
    return 1 if above or failures or uncounted else 0


def exported(path: Path, kept: Path) -> dict[str, Any]:
    """Return tensors and program of a problem at its full sizes, from a process of its own."""
    if not kept.is_file():
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            try:
                said = _export(path)
            except BaseException as error:
                said = {"why": f"{type(error).__name__}: {error}"}
            kept.write_text(json.dumps(said), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _export(path: Path) -> dict[str, Any]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelblaster.harness.reference.exported.program import export_program
    from kernelblaster.harness.reference.sizes.variant import Variant, recurrent_at_once

    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    variant = Variant(path.read_text(encoding="utf-8"), str(path), {}, Reading())
    instance = variant.instance
    if variant.faked:
        with FakeTensorMode(allow_non_fake_inputs=True):
            instance = variant.reference.instance(seed=0)
    with recurrent_at_once():
        program = export_program(instance, str(path))
    return {"tensors": variant.tensors, "program": program}


def task_of(said: dict[str, Any]) -> Task:
    """Return what the bound needs of a problem."""
    tensors = tuple(TensorSpec(**each) for each in said["tensors"])
    variant = TaskVariant(name="full", dimensions={}, tensors=tensors)
    return Task(
        name="problem", path="", reference_sha256="", source="", op_class="mixed",
        dtype=tensors[0].dtype, tolerance=Tolerance(absolute=1e-4, relative=1e-4), full=variant,
        verify=variant, program=Program(**said["program"]),
    )  # fmt: skip


def table(rows: Sequence[Row], failures: Sequence[tuple[tuple[int, int], str]]) -> Iterator[str]:
    """Yield the page's lines."""
    above = [row for row in rows if row.bound.microseconds > row.fastest_us]
    yield "# The speed of light of KernelBench's problems beside what was measured"
    yield ""
    yield (
        f"Made by benchmarks/kernelbench/bounds_vs_baselines.py on {datetime.date.today()}. "
        "Times, FLOPs and bytes to compare with: PyTorch 2.11 on one H200, fp32 with TF32 off, "
        "L2 flushed, the faster of eager and torch.compile. Bounds: " + rows[0].bound.source + "."
    )
    yield ""
    yield (
        f"{len(rows)} problems have a program ({len(failures)} have none). Bounds above a "
        f"measured time: {len(above)}{_places(above)}. Nearest to its time: "
        f"{max(row.bound.microseconds / row.fastest_us for row in rows):.3f} of it."
    )
    yield ""
    yield "| level | problems | bound by memory | bound over time, geometric mean | as defined |"
    yield "|---|---|---|---|---|"
    for level in sorted({row.place[0] for row in rows}):
        chosen = [row for row in rows if row.place[0] == level]
        shares = [row.bound.microseconds / row.fastest_us for row in chosen]
        defined = [
            max(row.bound.memory_us, row.bound.defined_us) / row.fastest_us for row in chosen
        ]
        memory = sum(row.bound.binds == "memory" for row in chosen)
        yield f"| {level} | {len(chosen)} | {memory} | {_mean(shares):.3f} | {_mean(defined):.3f} |"
    yield ""
    yield (
        "The last column has every operation of the operators' definitions: of a convolution each "
        "tap, which an algorithm may spare (`docs/measuring.md`)."
    )
    yield ""
    yield "| why figures differ | problems | in words |"
    yield "|---|---|---|"
    for name, words in CLASSES.items():
        chosen = [row for row in rows if name in row.classes]
        yield f"| {name} | {len(chosen)} | {words}{_places(chosen) if name != 'same' else ''} |"
    yield ""
    yield (
        "| problem | GFLOP, ours | of theirs | MB, ours | of theirs | why | spared | bound us | by "
        "| with half types us | measured us | bound over measured |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        bound = row.bound
        spared = bound.spared / row.products if row.products else 0.0
        yield (
            f"| {row.place[0]}/{row.place[1]} | {row.products / 1e9:.2f} | "
            f"{_times(row.products, row.flops)} | {row.moved / 1e6:.1f} | "
            f"{_times(row.moved, row.nbytes)} | {', '.join(row.classes)} | {spared:.0%} | "
            f"{bound.microseconds:.1f} | {bound.binds} | {bound.tensor_microseconds:.1f} | "
            f"{row.fastest_us:.1f} | {bound.microseconds / row.fastest_us:.3f} |"
        )
    for (level, number), why in failures:
        yield f"| {level}/{number} | no program: {why} |"


def _near(ours: int, theirs: int) -> bool:
    return abs(ours - theirs) <= 0.005 * max(ours, theirs)


def _times(ours: int, theirs: int) -> str:
    if not ours and not theirs:
        return "-"
    return f"{ours / theirs:.3f}" if theirs > 1e-3 * ours else "none counted"


def _places(rows: Sequence[Row]) -> str:
    return f" ({', '.join(f'{row.place[0]}/{row.place[1]}' for row in rows)})" if rows else ""


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    raise SystemExit(main())
