"""Machine code whose every instruction names the PTX statement it comes from."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..processes import TimedOut, run_process, scrubbed_environment
from ..toolchain import Toolchain
from .statement_labels import label_statements

SECONDS = 120.0


def machine_listing(toolchain: Toolchain, ptx: Path, arch: str) -> str | None:
    """Return nvdisasm's listing of a PTX file compiled with its statements as source lines.

    None where ptxas or nvdisasm is missing or refuses: profiles then rest on PTX alone.
    """
    ptxas, nvdisasm = toolchain.tool("ptxas"), toolchain.tool("nvdisasm")
    if ptxas is None or nvdisasm is None:
        return None
    labelled = label_statements(ptx.read_text(errors="replace"))
    with tempfile.TemporaryDirectory(prefix="kernelblaster-sass-") as scratch:
        folder = Path(scratch)
        (folder / "statements.ptx").write_text(labelled)
        assemble = [str(ptxas), f"-arch={arch}", "-O3", "-lineinfo", "statements.ptx", "-o",
                    "statements.cubin"]  # fmt: skip
        disassemble = [str(nvdisasm), "-gi", "-c", "statements.cubin"]
        environment = scrubbed_environment(folder)
        try:
            for command, log in ((assemble, "ptxas.log"), (disassemble, "listing")):
                status = run_process(
                    command, directory=folder, environment=environment, log=folder / log,
                    seconds=SECONDS,
                )  # fmt: skip
                if status != 0:
                    return None
        except TimedOut:
            return None
        return (folder / "listing").read_text(errors="replace")
