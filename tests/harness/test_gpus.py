"""Adding a GPU is one row; families of architectures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import contributing
import pytest

import kernelblaster
from kernelblaster.harness.gpus import GPUS, architecture_family, find_gpu
from kernelblaster.harness.simt import constants_of

USES = """
from kernelblaster.harness.devices.deferred import DeferredDevice
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.simt import constants_of, describe_launch
from kernelblaster.harness.simt.counters import Counts, LaunchCounters
from kernelblaster.tools.wording.device import device_text
print(DeferredDevice("a30").identity.arch)
print(SimulatedDevice("a30").identity.gpu)
print(device_text("NVIDIA A30", "sm_80", "cuda").splitlines()[1])
print(constants_of(find_gpu("A30")).origin)
launch = LaunchCounters(
    "k", (999, 1, 1), (256, 1, 1), 0, [Counts()], 1, 8, 9.0, 0.0, 0.0, 1.0, 1e9, 0.0, 0.0
)
print(describe_launch(find_gpu("A30"), None, launch)[0].microseconds > 1e9 / 933e3)
"""


def test_a_gpu_is_one_row(tmp_path: Path) -> None:
    root, copy = Path(kernelblaster.__file__).parent, tmp_path / "kernelblaster"
    (copy / "harness").mkdir(parents=True)
    for place in (root, root / "harness"):
        for entry in place.iterdir():
            if entry.suffix == ".py" or (entry / "__init__.py").exists():
                target = copy / entry.relative_to(root)
                if not target.exists():
                    target.symlink_to(entry)
    rows = copy / "harness" / "gpus.py"
    text = contributing.patched("harness/gpus.py", rows.read_text())
    rows.unlink()
    rows.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", USES], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "sm_80", "A30",
        "Peaks: 56 SMs at 1.44 GHz; DRAM 933 GB/s; L2 24 MiB; FP32 10.3 TFLOPS; FP64 5.2; "
        "fp16/bf16 tensor cores 165, TF32 half of that.",
        "assumed: the H200's constants scaled by L2 and clock, not measured on this GPU", "True",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "family"),
    [("sm_80", "ampere"), ("sm_86", "ampere"), ("sm_89", "ada"), ("sm_90", "hopper"),
     ("sm_90a", "hopper"), ("sm_100", "sm_10x"), ("sm_120a", "sm_12x"), ("elsewhere", "elsewhere")],
)  # fmt: skip
def test_what_gains_carry_over_within(arch: str, family: str) -> None:
    assert architecture_family(arch) == family


def test_only_the_h200_is_measured() -> None:
    measured = {name for name, gpu in GPUS.items() if "measured on one" in constants_of(gpu).origin}
    assert measured == {"H200"}
    hopper, ampere = constants_of(find_gpu("H100")), constants_of(find_gpu("A100"))
    assert hopper.tensor_efficiency == constants_of(find_gpu("H200")).tensor_efficiency
    assert ampere.tensor_efficiency > hopper.tensor_efficiency
