"""Machine code whose every instruction names the PTX statement it comes from."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...build.cache import cache_root
from ...build.toolchain import Toolchain
from ...process.children import TimedOut, run_process, scrubbed_environment
from ...process.scratch import scratch_folder
from ..ptx.statement_labels import label_statements

SECONDS = 120.0
LABELS = 1
"""Raised whenever a listing of the same PTX may change: one that was kept is then another's."""


def machine_listing(toolchain: Toolchain, ptx: Path, arch: str) -> str | None:
    """Return nvdisasm's listing of a PTX file compiled with its statements as source lines.

    It is kept beside the PTX. None where ptxas or nvdisasm is missing or refuses: profiles then
    rest on PTX alone.
    """
    kept = ptx.with_suffix(f".{LABELS}.sass")
    with contextlib.suppress(OSError):
        return kept.read_text(errors="replace")
    listing = _make(toolchain, ptx, arch)
    if listing is not None:
        # A candidate is profiled where its build cannot be written, too.
        with contextlib.suppress(OSError), scratch_folder("listing", cache_root()) as folder:
            new = folder / kept.name
            new.write_text(listing)
            new.replace(kept)
    return listing


def _make(toolchain: Toolchain, ptx: Path, arch: str) -> str | None:
    ptxas, nvdisasm = toolchain.tool("ptxas"), toolchain.tool("nvdisasm")
    if ptxas is None or nvdisasm is None:
        return None
    labelled = label_statements(ptx.read_text(errors="replace"))
    with scratch_folder("sass") as folder:
        (folder / "statements.ptx").write_text(labelled)
        assemble = [str(ptxas), f"-arch={arch}", "-O3", "-lineinfo", "statements.ptx", "-o",
                    "statements.cubin"]  # fmt: skip
        disassemble = [str(nvdisasm), "-gi", "-c", "statements.cubin"]
        if _run(assemble, folder) is None:
            return None
        # The analysis of data flow takes a quarter of the time; it finds where computed branches
        # lead, and tells nothing else.
        listing = _run([*disassemble, "-ndf"], folder)
        if listing is None or "BRX" in listing or "JMX" in listing:
            return _run(disassemble, folder)
        return listing


def _run(command: list[str], folder: Path) -> str | None:
    """Return what a command prints; None where it fails."""
    log = folder / "log"
    environment = scrubbed_environment(folder)
    try:
        status = run_process(
            command, directory=folder, environment=environment, log=log, seconds=SECONDS
        )
    except TimedOut:
        return None
    return None if status else log.read_text(errors="replace")
