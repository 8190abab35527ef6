"""Entry point of the child process that runs one candidate: `python -m ...simt.worker REQUEST`.

The candidate's host code runs in this process, so the parent believes nothing but a report file
that carries the request's token. Limits are set before the candidate is loaded.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Serve the request in the file named by the only argument; returns the exit status."""
    request: dict[str, Any] = json.loads(Path(arguments[0]).read_text())
    # The token must not lie about where the candidate could read it.
    os.unlink(arguments[0])
    _limit(request["limits"])
    if request["mode"] == "verify":
        from .verify_run import verify as serve
    else:
        from .profile_run import profile as serve
    body = serve(request)
    report = Path(request["report"])
    temporary = report.with_suffix(".part")
    temporary.write_text(json.dumps({"token": request["token"], **body}))
    temporary.rename(report)
    # The candidate's destructors and exit handlers are not run.
    sys.stdout.flush()
    os._exit(0)


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
