"""The pages of an output that a run left something in, and the elements that lie there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records.tensors import TensorSpec
from .border import Malformed
from .poison import FULL_SIZE_POISON

PAGE = 4096
CHUNK_PAGES = 128
"""Pages compared at a time: their values in double precision stay in a cache."""
SECTOR = 32
"""Bytes of the pieces of memory that atomics are noted for."""


def written_elements(
    spec: TensorSpec, outputs: Path
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield (indices, raw elements) of the pages that a run left something in."""
    pages = np.fromfile(outputs / f"{spec.name}.pages", dtype=np.int64)
    if pages.size == 0:
        return
    if pages[0] < 0 or pages[-1] * PAGE >= spec.nbytes or (np.diff(pages) <= 0).any():
        raise Malformed(f"{spec.name}: the pages of the output are not in order")
    item = spec.nbytes // spec.numel
    try:
        raw = np.fromfile(outputs / f"{spec.name}.data", dtype=f"<u{item}")
    except OSError as error:
        raise Malformed(f"{spec.name}: the pages of the output are missing") from error
    if raw.nbytes != PAGE * (pages.size - 1) + min(PAGE, spec.nbytes - int(pages[-1]) * PAGE):
        raise Malformed(f"{spec.name}: the pages of the output are not whole")
    each = PAGE // item
    for start in range(0, pages.size, CHUNK_PAGES):
        got = raw[start * each : (start + CHUNK_PAGES) * each]
        first = pages[start : start + CHUNK_PAGES] * each
        yield (first[:, None] + np.arange(each)).ravel()[: got.size], got


class Pages:
    """The pages that one of two runs left of an output, looked up by the places of elements."""

    def __init__(self, spec: TensorSpec, outputs: tuple[Path, Path], again: int) -> None:
        self._item, self._again = spec.nbytes // spec.numel, again
        self._pages = np.fromfile(outputs[again] / f"{spec.name}.pages", dtype=np.int64)
        path = outputs[again] / f"{spec.name}.data"
        known = path.is_file() and path.stat().st_size >= self._item
        self._data = np.memmap(path, dtype=f"<u{self._item}", mode="r") if known else None

    def hold(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which elements lie on a page that is there."""
        return np.isin(places // (PAGE // self._item), self._pages)

    def at(self, places: NDArray[np.int64], count: int) -> NDArray[Any]:
        """Return the raw elements at some places; those of pages that are missing are poison."""
        each = PAGE // self._item
        poison = poison_bits(np.dtype(f"<u{self._item}"), self._again)
        found = np.full(count, poison, dtype=f"<u{self._item}")
        if self._data is None:
            return found
        page, within = np.divmod(places, each)
        row = np.searchsorted(self._pages, page)
        there = row < self._pages.size
        there[there] = self._pages[row[there]] == page[there]
        at = row * each + within
        there &= at < self._data.size
        found[there] = self._data[at[there]]
        return found


def known_elements(
    spec: TensorSpec, outputs: Path, start: int, got: NDArray[Any]
) -> NDArray[np.bool_]:
    """Say which elements hold what they would had all blocks run, of those from a byte on."""
    whole = np.memmap(outputs / f"{spec.name}.known", dtype=np.uint8, mode="r")
    bits = np.asarray(whole[start : start + got.nbytes])
    if bits.size != got.nbytes:
        raise Malformed(f"{spec.name}: what was followed is not whole")
    return np.asarray(bits.reshape(-1, got.itemsize).all(axis=1))


def untouched(spec: TensorSpec, places: NDArray[np.int64], outputs: Path) -> NDArray[np.bool_]:
    """Say which elements no atomic has touched: what a block stored there is its last word."""
    return ~_within(spec, places, outputs / f"{spec.name}.atomics")


def left_open(spec: TensorSpec, places: NDArray[np.int64], outputs: Path) -> NDArray[np.bool_]:
    """Say which elements blocks join that were looked at, and are not among those that ran."""
    return _within(spec, places, outputs / f"{spec.name}.open")


def _within(spec: TensorSpec, places: NDArray[np.int64], path: Path) -> NDArray[np.bool_]:
    if not path.is_file():
        return np.zeros(places.size, bool)
    sectors = np.fromfile(path, dtype=np.int64)
    return np.isin(places * (spec.nbytes // spec.numel) // SECTOR, sectors)


def like_poison(spec: TensorSpec, answers: Path, first: Pages, second: Pages) -> int:
    """Count the elements of whole pages that are rightly the first run's poison, and written.

    The second run tells: there the poison is another.
    """
    right = np.memmap(answers, dtype=f"<u{spec.nbytes // spec.numel}", mode="r")
    count, poison = 0, poison_bits(right.dtype, 0)
    for start in range(0, spec.numel, CHUNK_PAGES * PAGE):
        alike = start + np.flatnonzero(right[start : start + CHUNK_PAGES * PAGE] == poison)
        alike = alike[~first.hold(alike)]
        count += int((second.at(alike, alike.size) == poison).sum())
    return count


def poison_bits(dtype: np.dtype[Any], again: int) -> int:
    """Return the bits of an element that nobody wrote, in the first of two runs or the second."""
    return int.from_bytes(bytes([FULL_SIZE_POISON[again][0]]) * dtype.itemsize, "little")
