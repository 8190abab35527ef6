"""The program beside a process that starts others: kills their groups when its input ends.

Lines on standard input: `+GROUP` and `-GROUP`. Its argument is a line of an environment: what bears
it may have been started too late to be told of, and ends as well. Imports nothing of the package,
to start at once.
"""

import contextlib
import os
import signal
import sys
import time

ROUNDS = 100
ROUND_SECONDS = 0.05
EMPTY_ROUNDS = 3


def main() -> None:
    """Read until the writer is gone, then kill what was not taken back and what bears the mark."""
    mark = sys.argv[1].encode()
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        number = int(line[1:])
        if line[:1] == b"+":
            groups.add(number)
        else:
            groups.discard(number)
    # Again while one is left that started others meanwhile, that the kernel is slow to end, or that
    # was between fork and exec, and so without its own environment, when it was looked for.
    empty = 0
    for _ in range(ROUNDS):
        groups |= _groups_with(mark)
        empty = 0 if groups else empty + 1
        if empty == EMPTY_ROUNDS:
            return
        for group in groups:
            with contextlib.suppress(OSError):  # It has ended by itself.
                os.killpg(group, signal.SIGKILL)
        groups.clear()
        time.sleep(ROUND_SECONDS)


def _groups_with(mark: bytes) -> set[int]:
    """Return the groups of the processes whose environment holds a line."""
    found = set()
    for name in os.listdir("/proc"):
        # It may end while it is read, or be somebody else's.
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                found.add(os.getpgid(int(name)))
    return found


if __name__ == "__main__":
    main()
