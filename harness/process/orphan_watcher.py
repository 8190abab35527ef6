"""The program beside a process that starts others: kills their groups when its input ends.

Lines on standard input: `+GROUP` and `-GROUP`. Imports nothing of the package, to start at once.
"""

import os
import signal
import sys


def main() -> None:
    """Read until the writer is gone, then kill every group that was not taken back."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        number = int(line[1:])
        if line[:1] == b"+":
            groups.add(number)
        else:
            groups.discard(number)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # It has ended by itself.


if __name__ == "__main__":
    main()
