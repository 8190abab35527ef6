"""Entry point of the child process that runs one candidate: `python -m ...simt.worker REQUEST`.

Only its kernels run here, interpreted; its host half has run elsewhere. Still nothing of them is
trusted: the parent believes nothing but a report file that carries the request's token, limits are
set and the process is shut off from files, network and other processes. The request's file goes
last before that: where it is still there when this process has ended, no candidate can have been
the reason.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..isolation.candidate_process import enclose_process
from ..isolation.privileges import set_limits

if TYPE_CHECKING:
    from ..judge.reports import VerifyReport
    from .counters import ProfileReport


def warm() -> None:
    """Import what requests take."""
    from .run import verify_run  # noqa: F401
    from .sample import profile_run, wide_run  # noqa: F401


def main(arguments: list[str]) -> int:
    """Serve the request in the file named by the only argument; returns the exit status."""
    request: dict[str, Any] = json.loads(Path(arguments[0]).read_text())
    set_limits(request["limits"])
    serve: Callable[[dict[str, Any]], VerifyReport | ProfileReport]
    if request["mode"] == "verify":
        from .run.verify_run import verify as serve
    elif request["mode"] == "wide":
        from .sample.wide_run import run_wide as serve
    else:
        from .sample.profile_run import profile as serve
    from .run.arena import NoAddressSpace
    from .run.library import core_library

    # Compiling it, if it came to that, takes processes and a cache to write.
    core_library()
    missing = enclose_process(_readable(request), [Path(arguments[0]).parent])
    # The token must not lie about where the candidate could read it.
    os.unlink(arguments[0])
    body: dict[str, Any]
    try:
        found = serve(request)
        found.isolation_missing = missing
        body = asdict(found)
    except NoAddressSpace as error:
        body = {"machine_error": str(error)}
    report = Path(request["report"])
    temporary = report.with_suffix(".part")
    temporary.write_text(json.dumps({"token": request["token"], **body}))
    temporary.rename(report)
    # The candidate's destructors and exit handlers are not run.
    sys.stdout.flush()
    os._exit(0)


def _readable(request: dict[str, Any]) -> list[Path]:
    """Return what serving takes, but not PyTorch's answers, which lie beside the inputs."""
    cases = Path(request["cases_directory"])
    inputs = [spec["name"] for spec in request["tensors"] if spec["role"] != "output"]
    found = [Path(request["ptx"])]
    found += [cases / case["directory"] / f"{name}.bin" for case in request["cases"]
              for name in inputs]  # fmt: skip
    if request["inputs_directory"] is not None:
        found.append(Path(request["inputs_directory"]))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
