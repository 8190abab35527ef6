"""Finds out how far this machine can shut model-written host code off, by doing it to a child."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..process.children import (
    TimedOut,
    in_background,
    python_environment,
    read_log,
    run_process,
)
from ..process.scratch import scratch_folder
from ..records.record import Record
from .candidate_process import attempt, enclose_process
from .compiler import enclose_compiler
from .landlock import version
from .privileges import leave_network

SECONDS = 30.0


class Sandbox(Record):
    """What can be applied here."""

    missing: tuple[str, ...]
    """What cannot, in words; empty where all can."""
    finding: str
    """One line for `kernelblaster doctor`."""
    remedy: str = ""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def sandbox() -> Sandbox:
    """Try everything in a child process and return what worked. Blocks for a moment."""
    with scratch_folder("sandbox") as directory:
        log = directory / "log"
        try:
            status = run_process(
                [sys.executable, "-P", "-m", __name__],
                directory=directory, environment=python_environment(directory),
                log=log, seconds=SECONDS,
            )  # fmt: skip
            words = read_log(log)
            missing = tuple(json.loads(words)) if status == 0 else (f"a trial (status {status})",)
        except TimedOut:
            missing = (f"a trial (no end within {SECONDS:g} s)",)
        except ValueError:
            missing = ("a trial (it said something else)",)
    if not missing:
        return Sandbox(
            missing=(),
            finding=f"host code is shut off from files (Landlock {version()}), network, processes "
            "and the kernel's further facilities",
        )
    return Sandbox(
        missing=missing,
        finding=f"host code of candidates runs without {'; '.join(missing)}",
        remedy="Linux 6.12 or later has all of it; in a container, let its seccomp profile allow "
        "landlock_create_ruleset, landlock_add_rule, landlock_restrict_self, seccomp and unshare",
    )


def main() -> None:
    """Shut this process off and print what could not be applied, as JSON."""
    missing: list[str] = []
    attempt(missing, "a network namespace of its own (for the GPU's worker)", leave_network)
    missing += in_background(lambda: enclose_compiler([], [Path.cwd()])).result()
    missing += enclose_process([], [Path.cwd()])
    print(json.dumps(list(dict.fromkeys(missing))))


if __name__ == "__main__":
    main()
