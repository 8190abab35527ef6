"""Machine code whose every instruction names its PTX statement, made of what we read of the PTX."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...build.cache import cache_root
from ...build.toolchain import Toolchain
from ...process.children import TimedOut, run_process, scrubbed_environment
from ...process.scratch import scratch_folder
from ...vetting.ptx_tokens import read_ptx
from ..ptx.parser import PtxError, parse
from ..ptx.printing import print_module
from .machine_image import first_difference, machine_image

SECONDS = 120.0
LABELS = 2
"""Raised whenever what is made of the same PTX may change: what was kept is then another's."""


def misreading(toolchain: Toolchain, ptx: Path, arch: str) -> str:
    """Return how the simulated GPU's reading of a build's PTX differs from that of ptxas.

    What was read is written as PTX again (printing), and ptxas makes machine code of that, too.
    Where code, constants, initial values and memory are those of candidate.cubin beside the PTX,
    byte by byte, ptxas read the same instructions, operands, names, labels and data. What a rule of
    decode/ makes of an instruction that was read rightly is not seen, nor what ptxas drops in both
    because it changes nothing (dead code, line numbers).

    "" where nothing differs, where the PTX cannot be read at all (running it says why), and where
    ptxas is missing.
    """
    cubin = ptx.with_name("candidate.cubin")
    try:
        made = _labelled_cubin(toolchain, ptx, arch)
        if made is None or not cubin.is_file():
            return ""
        section = first_difference(machine_image(made), machine_image(cubin.read_bytes()))
    except _Refused as refused:
        return f"the simulated GPU reads its PTX as something that ptxas refuses: {refused}"
    except (PtxError, ValueError):
        return ""
    if not section:
        return ""
    return f"the simulated GPU does not read its PTX as ptxas does: {section} differs"


def machine_listing(toolchain: Toolchain, ptx: Path, arch: str) -> str | None:
    """Return nvdisasm's listing of a PTX file compiled with its statements as source lines.

    It is kept beside the PTX. None where ptxas or nvdisasm is missing or refuses: profiles then
    rest on PTX alone.
    """
    kept = ptx.with_suffix(f".{LABELS}.sass")
    with contextlib.suppress(OSError):
        return kept.read_text(errors="replace")
    nvdisasm = toolchain.tool("nvdisasm")
    try:
        cubin = _labelled_cubin(toolchain, ptx, arch)
    except (PtxError, _Refused):
        return None
    if cubin is None or nvdisasm is None:
        return None
    with scratch_folder("sass") as folder:
        (folder / "statements.cubin").write_bytes(cubin)
        disassemble = [str(nvdisasm), "-gi", "-c", "statements.cubin"]
        # The analysis of data flow takes a quarter of the time; it finds where computed branches
        # lead, and tells nothing else.
        status, listing = _run([*disassemble, "-ndf"], folder)
        if status or "BRX" in listing or "JMX" in listing:
            status, listing = _run(disassemble, folder)
    if status:
        return None
    _keep(kept, listing.encode())
    return listing


class _Refused(Exception):
    """What ptxas says against the PTX that was written of what was read."""


def _labelled_cubin(toolchain: Toolchain, ptx: Path, arch: str) -> bytes | None:
    """Return what ptxas makes of what we read; kept beside the PTX. None without ptxas.

    Raises:
        PtxError: the PTX cannot be read.
        _Refused: ptxas does not accept what was written of it.
    """
    kept = ptx.with_suffix(f".{LABELS}.cubin")
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    ptxas = toolchain.tool("ptxas")
    if ptxas is None:
        return None
    text = print_module(parse(read_ptx(ptx)))
    with scratch_folder("sass") as folder:
        (folder / "statements.ptx").write_text(text)
        command = [str(ptxas), f"-arch={arch}", "-O3", "-lineinfo", "statements.ptx", "-o",
                   "statements.cubin"]  # fmt: skip
        status, log = _run(command, folder)
        if status:
            raise _Refused(log.strip().split("\n")[0][:200])
        cubin = (folder / "statements.cubin").read_bytes()
    _keep(kept, cubin)
    return cubin


def _keep(final: Path, data: bytes) -> None:
    """Put a file beside a build; a candidate is evaluated where its build cannot be written too."""
    with contextlib.suppress(OSError), scratch_folder("labelled", cache_root()) as folder:
        new = folder / final.name
        new.write_bytes(data)
        new.replace(final)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    """Return the exit status of a command, and what it prints."""
    log = folder / "log"
    environment = scrubbed_environment(folder)
    try:
        status = run_process(
            command, directory=folder, environment=environment, log=log, seconds=SECONDS
        )
    except TimedOut:
        return 1, f"{command[0]} ran past its limit of {SECONDS:.0f} s"
    return status, log.read_text(errors="replace")
