"""Which NVIDIA GPUs this machine has, asked of nvidia-smi so that no CUDA context is made here."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from ..errors import UserError
from ..records.record import Record

_FIELDS = "index,uuid,name,compute_cap,memory.total,driver_version"
_PLACES = ("/usr/local/nvidia/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")


class FoundGpu(Record):
    """One GPU as the driver describes it."""

    index: int
    """As nvidia-smi counts: by PCI address."""
    uuid: str
    name: str
    """For example `NVIDIA H200`."""
    capability: tuple[int, int]
    memory_bytes: int
    driver: str
    """Version of the driver, for example 580.159.03."""

    @property
    def arch(self) -> str:
        """The architecture to compile for."""
        return architecture(self.capability)


def architecture(capability: tuple[int, int]) -> str:
    """Return the architecture to compile for on a GPU of a compute capability.

    From Hopper on some instructions (wgmma, tcgen05) exist in the architecture-specific target
    alone.
    """
    major, minor = capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def find_gpus() -> tuple[FoundGpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES allows, in its order, else all.

    Raises UserError, which says why and what to do, where there is none.
    """
    return visible(_all_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(gpus: tuple[FoundGpu, ...], chosen: str | None) -> tuple[FoundGpu, ...]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names. Raises UserError for none."""
    if chosen is None:
        return gpus
    found = []
    for part in chosen.split(","):
        match = [
            gpu
            for gpu in gpus
            if part.strip() == str(gpu.index) or (part and gpu.uuid.startswith(part.strip()))
        ]
        if not match:
            break  # As CUDA does: what follows an unknown entry does not count.
        found += match[:1]
    if not found:
        raise UserError(
            f"CUDA_VISIBLE_DEVICES={chosen!r} hides every GPU of this machine; unset it"
        )
    return tuple(found)


@functools.cache
def _all_gpus() -> tuple[FoundGpu, ...]:
    program = shutil.which("nvidia-smi") or next(filter(os.path.exists, _PLACES), None)
    if program is None:
        raise UserError("no NVIDIA driver: nvidia-smi is not on PATH")
    command = [program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{program} does not answer: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise UserError(f"{program} fails: {said[0] if said else f'status {done.returncode}'}")
    gpus = tuple(filter(None, map(parse_line, done.stdout.splitlines())))
    if not gpus:
        raise UserError(f"{program} lists no GPU")
    return gpus


def parse_line(line: str) -> FoundGpu | None:
    """Return the GPU of one line of nvidia-smi's CSV; None where the line describes none."""
    parts = [part.strip() for part in line.split(",")]
    try:
        index, uuid, name, capability, memory, driver = parts
        major, minor = capability.split(".")
        return FoundGpu(
            index=int(index), uuid=uuid, name=name, capability=(int(major), int(minor)),
            memory_bytes=int(memory) << 20 if memory.isdigit() else 0, driver=driver,
        )  # fmt: skip
    except ValueError:
        return None
