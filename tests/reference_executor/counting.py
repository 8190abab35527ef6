"""What one executed instruction costs: requests, sectors, lines and shared-memory wavefronts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

SECTOR, LINE, WORD, BANKS = 32, 128, 4, 32
HALF_WARP, QUARTER_WARP = 16, 8


def _busiest(chunks: set[int], groups: int) -> int:
    """Return how many different chunks the busiest group of banks has to serve."""
    return max(Counter(chunk % groups for chunk in chunks).values())


def shared_cost(
    lanes: Sequence[int], addresses: Sequence[int], size: int, *, storing: bool
) -> Counter[str]:
    """Return the counts of one request to shared memory of `size` bytes a lane.

    32 banks of 4 bytes. A wavefront serves one word of each bank, to every lane that wants it.
    Up to 4 bytes a lane the warp is served at once; wider accesses go one half-warp after the
    other, stores of 16 bytes one quarter after the other. `_64` and `_128` are the wavefronts that
    a 4-byte access's share of an access of 8 or 16 bytes would take: banks in groups of 2 and 4,
    the latter by half-warps, or quarters where it stores.
    """
    counts = Counter(shared_requests=1)
    pairs = list(zip(lanes, addresses, strict=True))

    def parts(length: int) -> list[list[int]]:
        count = 32 // length
        return [[a for lane, a in pairs if lane // length == part] for part in range(count)]

    widest = parts(QUARTER_WARP if storing else HALF_WARP)
    wide = widest if size == 16 else parts(HALF_WARP)
    for part in [list(addresses)] if size <= WORD else wide:
        if not part:
            continue
        words = {(a // WORD) + i for a in part for i in range(max(1, size // WORD))}
        counts["shared_wavefronts"] += _busiest(words, BANKS)
        counts["shared_wavefronts_ideal"] += -(-len(words) // BANKS)
    if size == WORD:
        counts["shared_wavefronts_64"] += _busiest({a // 8 for a in addresses}, BANKS // 2)
        for part in widest:
            if part:
                counts["shared_wavefronts_128"] += _busiest({a // 16 for a in part}, BANKS // 4)
    return counts


def global_cost(addresses: Sequence[int], size: int) -> Counter[str]:
    """Return the counts of one request to global memory: 32-byte sectors, 128-byte lines."""
    return Counter(
        global_requests=1,
        sectors=len({a // SECTOR for a in addresses}),
        lines=len({a // LINE for a in addresses}),
        bytes=size * len(addresses),
    )


def constant_cost(addresses: Sequence[int]) -> Counter[str]:
    """Return the counts of one read of constants by a register: its words are served in turn."""
    return Counter(constant_words=len({a // WORD for a in addresses}))


def local_cost(lanes: Sequence[int], addresses: Sequence[int], size: int) -> Counter[str]:
    """Return the counts of one request to local memory.

    The words of neighbouring lanes are neighbours there: a sector holds one word of eight lanes.
    """
    words = {
        (a // WORD + i, lane // 8)
        for lane, a in zip(lanes, addresses, strict=True)
        for i in range(max(1, size // WORD))
    }
    return Counter(local_requests=1, local_sectors=len(words))


def copy_cost(sources: Sequence[int], targets: Sequence[int]) -> Counter[str]:
    """Return what an asynchronous copy past the L1 costs more than a load and a store.

    Pieces are cut at the sectors of where they come from and of where they go.
    """
    pairs = list(zip(sources, targets, strict=True))

    def pieces(source: int, target: int) -> int:
        return len({(a // source, b // target) for a, b in pairs})

    return Counter(
        copy_sectors=pieces(LINE, SECTOR),
        copy_fetched=pieces(SECTOR, SECTOR),
        copy_wavefronts=pieces(2 * SECTOR, WORD * BANKS),
    )
