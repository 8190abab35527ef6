"""Builds the libraries that hold a candidate's host half to the launch contract; reads faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .native import build_native


def build_contract_library(
    name: str, sources: Sequence[Path], cuda_headers: Path, *, libraries: Sequence[str] = ()
) -> Path:
    """Compile the sources with launch_contract.c into a library and return its path.

    Raises UserError as `build_native` does.
    """
    here = Path(__file__).resolve().parent
    return build_native(
        name,
        [*sources, here / "launch_contract.c"],
        ["-std=gnu11", f"-I{cuda_headers}", f"-I{here}"],
        libraries=libraries,
    )


def read_faults(lines: bytes) -> list[tuple[str, str]]:
    """Return the faults (kind, message) that launch_contract.c wrote down."""
    text = lines.decode("utf-8", "replace").splitlines()
    return [(kind, message) for kind, _, message in (line.partition("\t") for line in text)]
