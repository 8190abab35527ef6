"""What it takes to ask every built-in rewrite about the first kernels of a deep model, by depth.

A step asks so of the kernel at hand. Equal layers share a kernel; of unequal ones, as they are here
where each block is wider than the last, each has its own. Seconds of the processor, the source new
and seen before.
With another checkout's interpreter the same is measured with that code, in a process of its own;
`--most` bounds the depth there, where that code would take minutes.

    python benchmarks/runs/rewrites_of_many_kernels.py [--python INTERPRETER] [--most 8] [--out F]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

from two_sides import beginning, measured

DEPTHS = (1, 4, 8, 20)
WIDER = {"equal": 0, "unequal": 4}
"""By how much each block is wider within than the last."""
MODEL = """
import torch
import torch.nn as nn

BATCH, WIDTH, DEPTH = 64, 64, {depth}


class Block(nn.Module):
    def __init__(self, width, within):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, within)
        self.down = nn.Linear(within, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(width, 2 * width + {wider} * each) for each in range(depth)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.softmax(x, 1)


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, DEPTH]
"""


def side(depth: int, layers: str) -> dict[str, float]:
    """Return the kernels and lines of the source, and the seconds of each time it is asked about;
    with the package that is imported."""
    from kernelblaster.harness.task.loading import load_task_now
    from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda
    from kernelblaster.tools.techniques.catalogue import first_rewrites

    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
        path = Path(folder) / "deep.py"
        path.write_text(MODEL.format(depth=depth, wider=WIDER[layers]))
        task = load_task_now(path)
        written = write_initial_cuda(task)
        if not isinstance(written, InitialKernel):
            raise SystemExit(f"no first kernel: {written}")
        source = written.source
        found: dict[str, float] = {
            "kernels": source.count("__global__"), "lines": source.count("\n"),
        }  # fmt: skip
        for name in ("new", "again"):
            began = time.process_time()
            first_rewrites(source, task)
            found[name] = time.process_time() - began
    return found


def main() -> None:
    """Measure both sides, or be one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="interpreter of another checkout")
    parser.add_argument("--most", type=int, default=max(DEPTHS), help="depth, with that one")
    parser.add_argument("--side", nargs=2, metavar=("DEPTH", "LAYERS"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.side is not None:
        print(json.dumps(side(int(given.side[0]), given.side[1])))
        return
    lines = [
        f"{beginning()}; seconds of the processor",
        f"{'blocks':>6s}  {'layers':>8s}  {'kernels':>8s}  {'lines':>6s}  {'code':>6s}  "
        f"{'a new source':>12s}  {'again':>8s}",
    ]
    print("\n".join(lines), flush=True)
    sides = [("before", given.python)] if given.python else []
    sides.append(("now", sys.executable))
    for depth, layers, (name, python) in itertools.product(DEPTHS, WIDER, sides):
        if name == "before" and depth > given.most:
            continue
        found = measured(name, python, __file__, str(depth), layers)
        lines.append(
            f"{depth:6d}  {layers:>8s}  {found['kernels']:8.0f}  {found['lines']:6.0f}  "
            f"{name:>6s}  {found['new']:12.2f}  {found['again']:8.2f}"
        )
        print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
