"""A GPU on which others leave room for one block, so that a candidate's blocks run one by one.

A GPU of its own runs a hundred blocks at a time, and a candidate that is wrong only where the
blocks before one have ended is right there on most days. Here one block of a launch fits beside
those that wait, so the hardware starts the next, in order, when one ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .driver import Driver, LaunchStep, Steps

CROWDED_SECONDS = 0.01
"""After which those that wait leave by themselves once the candidate has begun: a launch whose
blocks wait for each other, or need all of the GPU, then goes on as it would have."""
LEAST_LOOKS = 50
"""That each of them takes at the host's word meanwhile. The time may be that of other processes, to
which the GPU belongs in turn; a look is time of their own: the host's memory answers one after
another, and 130 blocks wait 0.1 ms for it."""
PLACED_SECONDS = 0.5
"""That they may take to come. Where other processes share the GPU it runs each of them in turn, for
milliseconds, and the host too is kept from its work."""
FORGOTTEN_SECONDS = 5.0
"""After which they leave though nobody told them that the candidate has begun."""
WAIT, LEAVE, COUNT = 0, 1, 2
"""What the first word says."""
_BLOCK = 1024
_WARP = 32
_WAITS = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry waits(
    .param .u64 words, .param .u32 place, .param .u64 before, .param .u64 after, .param .u32 least)
{
    .reg .pred %p<7>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<10>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LEAVE;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [place];
    ld.param.u64 %rd2, [before];
    ld.param.u64 %rd3, [after];
    ld.param.u32 %r2, [least];
    mov.u32 %r3, %ctaid.x;
    add.u32 %r1, %r1, %r3;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd4, %rd4, %rd1;
    mov.u32 %r4, 1;
    mov.u64 %rd5, %globaltimer;
    mov.u64 %rd6, 0;
    mov.u32 %r6, 0;
    st.volatile.global.u32 [%rd4], %r4;
AGAIN:
    ld.volatile.global.u32 %r5, [%rd1];
    setp.eq.u32 %p2, %r5, 1;
    @%p2 bra LEAVE;
    nanosleep.u32 2000;
    mov.u64 %rd7, %globaltimer;
    setp.eq.u32 %p3, %r5, 2;
    @%p3 bra COUNTS;
    sub.u64 %rd8, %rd7, %rd5;
    setp.lt.u64 %p4, %rd8, %rd2;
    @%p4 bra AGAIN;
    bra LEAVE;
COUNTS:
    setp.eq.u64 %p5, %rd6, 0;
    @%p5 mov.u64 %rd6, %rd7;
    add.u32 %r6, %r6, 1;
    sub.u64 %rd8, %rd7, %rd6;
    setp.lt.u64 %p4, %rd8, %rd3;
    @%p4 bra AGAIN;
    setp.lt.u32 %p6, %r6, %r2;
    @%p6 bra AGAIN;
LEAVE:
    bar.sync 0;
    ret;
}
\0"""
"""Words are the host's: the first says what to do, each further one that a block came. Times are of
nanoseconds."""


class Crowd:
    """Blocks that wait on a GPU, in streams of their own.

    Args:
        sms: multiprocessors of the GPU.
        threads: that one of them holds.
        shared_bytes: the most dynamic shared memory that a block may have: nothing fits beside it.
    """

    def __init__(self, driver: Driver, sms: int, threads: int, shared_bytes: int) -> None:
        """Load the program that waits. Raises DriverError."""
        self._driver, self._sms, self._threads = driver, sms, threads
        self._shared_bytes = shared_bytes
        self._function = driver.function(driver.load(_WAITS), "waits", shared_bytes)
        driver.share_most(self._function)
        parts = 1 + -(-threads // _BLOCK)
        self._words = torch.zeros(sms + parts, dtype=torch.int32, pin_memory=True)
        self._seen = self._words.numpy()
        self._streams = [torch.cuda.Stream() for _ in range(parts)]
        self.times = 0
        """How often all that were to wait had come before the candidate began."""

    @contextmanager
    def leaving_room_for(self, threads: int) -> Iterator[Callable[[], None]]:
        """Hold the GPU, but for one block of so many threads, until the end or for a while.

        The GPU must be idle before; those that waited may still be leaving after. Yields what is to
        be called once the candidate is enqueued: the while begins then.
        """
        self._seen[:] = WAIT
        self.times += self._fill(threads, time.monotonic() + PLACED_SECONDS)
        try:
            yield self._begun
        finally:
            self._seen[0] = LEAVE

    def _begun(self) -> None:
        self._seen[0] = COUNT

    def _fill(self, threads: int, ends: float) -> bool:
        """Have all places taken but those of so many threads; say whether all came in time."""
        came = self._place(0, self._sms - 1, _BLOCK, self._shared_bytes, ends)
        spare, place = self._threads - -(-threads // _WARP) * _WARP, self._sms - 1
        while came and spare > 0:
            came = self._place(place, 1, min(_BLOCK, spare), 0, ends)
            spare, place = spare - _BLOCK, place + 1
        return came

    def _place(
        self, place: int, blocks: int, threads: int, shared_bytes: int, ends: float
    ) -> bool:
        """Start blocks that wait; say whether all of them came in time."""
        if blocks < 1:
            return True
        words = (
            self._words.data_ptr().to_bytes(8, "little"),
            (1 + place).to_bytes(4, "little"),
            int(1e9 * FORGOTTEN_SECONDS).to_bytes(8, "little"),
            int(1e9 * CROWDED_SECONDS).to_bytes(8, "little"),
            LEAST_LOOKS.to_bytes(4, "little"),
        )
        step = LaunchStep(self._function, (blocks, 1, 1), (threads, 1, 1), shared_bytes, (), words)
        stream = self._streams[max(0, place - self._sms + 2)]
        if Steps(self._driver, [step]).run(int(stream.cuda_stream)):
            return False
        while not self._seen[1 + place : 1 + place + blocks].all():
            if time.monotonic() >= ends:
                return False
            time.sleep(0)  # Others want the processor, too.
        return True
