"""Times calls enqueued before the GPU came to them: as many flushes before as the host needs."""

from __future__ import annotations

from collections.abc import Callable

from .session import Clocked, GpuSession

MOST_AHEAD = 128
"""Flushes of the L2 before a call, from one on twice as many each time that the host was late to
enqueue it, and half as many after ON_TIME calls in which it was not: together up to 15 ms."""
ON_TIME = 16
LONG_MICROSECONDS = 10_000.0
"""A call that takes longer is not run again: no flush can come so far before it, and it matters
less."""
HOST_SHARE = 0.5
"""Of a late call's time that enqueuing it took: a GPU that is busy all the while waits for none."""


class Clock:
    """Times the calls of contestants, each with as many flushes before as its last ones needed.

    Args:
        machine: what they run on.
    """

    def __init__(self, machine: GpuSession) -> None:
        self.disturbed: dict[str, int] = {}
        """By contestant of PyTorch's, samples of which a part may be the host's time."""
        self.host: dict[str, list[float]] = {}
        """Microseconds that enqueuing its calls took where nothing kept the host waiting."""
        self._machine = machine
        self._ahead: dict[str, int] = {}
        self._on_time: dict[str, int] = {}

    def once(self, name: str, call: Callable[[], None]) -> Clocked:
        """Time a call; where the host was late to enqueue it, the next one begins earlier."""
        ahead = self._ahead.get(name, 1)
        found = self._machine.clock(call, ahead)
        self._on_time[name] = 0 if found.late else self._on_time.get(name, 0) + 1
        if found.late:
            self._ahead[name] = min(2 * ahead, MOST_AHEAD)
        elif self._on_time[name] % ON_TIME == 0:
            self._ahead[name] = max(1, ahead // 2)
        if found.fault is None and found.microseconds <= 0:
            words = f"the events around {name} show no time"
            return found._replace(fault=("cuda_error", words))
        return found

    def in_time(
        self, name: str, call: Callable[[], None], again: Callable[[], None] = lambda: None
    ) -> Clocked:
        """Time a call of PyTorch's before which all of it was enqueued, if there is one.

        PyTorch takes tens of microseconds of the host's time for each operation, more of a busy
        one: beside kernels of a few microseconds nothing else would be measured.

        Args:
            name: of the contestant.
            call: enqueues it.
            again: is called before each further call, to give it what the last one had.
        """
        while True:
            ahead = self._ahead.get(name, 1)
            found = self.once(name, call)
            if not found.late or ahead == MOST_AHEAD or found.microseconds > LONG_MICROSECONDS:
                break
            again()
        if not found.late:
            self.host.setdefault(name, []).append(found.host_microseconds)
        elif found.host_microseconds > HOST_SHARE * found.microseconds or ahead == MOST_AHEAD:
            self.disturbed[name] = self.disturbed.get(name, 0) + 1
        return found
