"""Judges what the sampled blocks wrote at full dimensions: is it right, and is it all.

Blocks are sampled, so nothing proves a whole answer; but what was written must be PyTorch's, and
the launches must write, by estimate, nearly all of every output. Otherwise the time would be that
of a kernel that does its work at the shrunken dimensions only. Where all blocks were run, the
whole answer is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..records.tasks import Task
from ..records.tensors import TensorSpec
from ..task.full_case import FullCase, RowTolerance
from .border import Malformed
from .poison import FULL_SIZE_POISON, PROFILED_WORKSPACE
from .reports import LaunchReport, TransferReport, Written
from .verification import Nearness, agree, decode_elements, may_step, within_step

LEAST_WRITTEN = 0.9
"""Share of each output that the launches of one call must write, by estimate."""
NOT_WRITTEN = "not_written"
"""Kind of the finding that the sampled blocks write too little."""
PAGE = 4096
CHUNK_PAGES = 128
"""Pages compared at a time: their values in double precision stay in a cache."""
SECTOR = 32
"""Bytes of the pieces of memory that atomics are noted for."""


@dataclass(frozen=True)
class Checked:
    """What was compared with PyTorch's answer at full dimensions, and what was looked at there."""

    elements: int
    withheld: str = ""
    """Why some of what the blocks wrote could not be compared; empty where all of it was."""
    share: float = 0.0
    """Of the elements of all outputs, those compared, 0 to 1."""
    blocks: float = 0.0
    """Of the blocks of the launch of which fewest ran, those that did, 0 to 1."""
    race_checked: int = 0
    """Blocks that were also run with all checks."""
    orders: int = 1
    """Orders of blocks and warps, each on a poison of its own, in which they ran."""
    uncompared: tuple[str, ...] = ()
    """Outputs of which nothing was compared, though PyTorch's answer is known."""

    @property
    def in_words(self) -> str:
        """Of what share of answers and blocks it speaks."""
        return (
            f"{_percent(self.share)} of the elements compared; {_percent(self.blocks)} of the "
            f"blocks run, in {'two orders' if self.orders > 1 else 'one order'}, "
            f"{self.race_checked or 'none'} of them with all checks"
        )

    @property
    def facts(self) -> dict[str, float | int | str]:
        """How much was compared, and why not all of it."""
        facts: dict[str, float | int | str] = {"full_size_checked": self.elements}
        if self.blocks:
            facts["full_size_coverage"] = self.in_words
        return facts | ({"full_size_unchecked": self.withheld} if self.withheld else {})

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What to say of a pass that nothing, or too little, was compared for."""
        if not self.withheld:
            return ()
        what = "part of the answer was not" if self.elements else "nothing was"
        message = f"at full dimensions {what} compared with PyTorch's: {self.withheld}"
        return (Diagnostic(kind="not_compared", message=message),)


@dataclass
class _Found:
    """What the parts of one output add up to."""

    checked: int = 0
    """Elements compared with PyTorch's."""
    wrong: int = 0
    stepped: int = 0
    """Those of them that are no more than a step off."""
    first: tuple[int, float, float] | None = None
    """Index, expected, got."""
    written: int | None = None
    """Bytes that kernels wrote; None where that cannot be told."""
    by_atomics: int = 0
    """Elements that atomics touched: other blocks would go on adding to them."""
    by_transfers: float = 0.0
    """Bytes that only copies and fills wrote, and rightly where an answer tells."""

    def is_wrong(self, tolerance: RowTolerance | None) -> bool:
        """Say whether more differs than may be a step off."""
        share = tolerance.share if tolerance else 0.0
        return self.wrong > self.stepped or self.wrong > may_step(share, self.checked)


def judge_full_size(
    task: Task,
    case: FullCase | None,
    launches: Sequence[LaunchReport | TransferReport],
    outputs: Path,
) -> tuple[StageResult | None, Checked]:
    """Return the failure that a profile run shows, if any, and what was compared.

    Raises Malformed where what the child left cannot be.
    """
    checked = by_atomics = 0
    kernels, transfers = _kernels(launches), _transfers(launches)
    reasons: list[str] = []
    for place, spec in enumerate(task.full.of_role("output")):
        if not spec.numel:
            continue
        into = [transfer for transfer in transfers if transfer.place == place]
        tolerance = case.tolerances[place] if case else None
        known = (Path(case.answers, f"{spec.name}.bin"), tolerance) if case and tolerance else None
        found = _Found()
        carried = _carried(kernels, transfers, place)
        unlooked = bool(carried) and not _is_last(launches, place, carried)
        reason = "" if case is None else _not_final(launches, place)
        if unlooked and case:
            reason = reason or "copies carry what launches wrote in part"
        if reason:
            reasons.append(reason)
        dump = outputs / f"{spec.name}.pages"
        if dump.is_file():
            found.written = None if any(each.copy for each in into) else 0
            for places, got in _written_elements(spec, outputs):
                compare = None if reason or not case else _untouched(spec, places, outputs)
                settled = [] if unlooked else carried
                _weigh(spec, places, got, known, into, found, compare=compare, carried=settled)
        else:
            found.by_transfers = float(sum(each.width * each.height for each in into))
        if found.is_wrong(tolerance):
            return _wrong(spec, found), Checked(checked)
        checked += found.checked
        by_atomics += found.by_atomics
        found.by_transfers += _copied_from_kernels(kernels, into)
        share = (_by_kernels(kernels, place, found.written) + found.by_transfers) / spec.nbytes
        if share < LEAST_WRITTEN:
            return _incomplete(spec, share), Checked(checked)
    if by_atomics:
        reasons.insert(0, f"blocks that were not run may add to {by_atomics} elements by atomics")
    return None, _checked(task, kernels, checked, next(iter(reasons), ""))


def judge_wide(
    task: Task,
    case: FullCase,
    launches: Sequence[LaunchReport | TransferReport],
    outputs: tuple[Path, Path],
) -> tuple[StageResult | None, Checked]:
    """Return how two runs of as many blocks as are affordable fail, and what was compared.

    An element in which they differ is not compared where blocks are missing, as it may hang on
    them; where none are, the answer hangs on the order of blocks or on what nobody wrote.
    Raises Malformed where what the child left cannot be.
    """
    kernels = _kernels(launches)
    complete = all(kernel.complete for kernel in kernels)
    checked = unsteady = 0
    uncompared: list[str] = []
    for place, spec in enumerate(task.full.of_role("output")):
        if not spec.numel:
            continue
        for folder in outputs:
            if not (folder / f"{spec.name}.pages").is_file():
                raise Malformed(f"{spec.name}: the pages of the output are missing")
        path, tolerance = Path(case.answers, f"{spec.name}.bin"), case.tolerances[place]
        if tolerance is None:
            continue
        first, second = (_Pages(spec, outputs, again) for again in (0, 1))
        found, hanging, passed = _Found(), 0, 0
        for places, got in _written_elements(spec, outputs[0]):
            other = second.at(places, got.size)
            first_values = decode_elements(got.tobytes(), spec.dtype)
            other_values = decode_elements(other.tobytes(), spec.dtype)
            both = (got != _poison(got.dtype, 0)) & (other != _poison(got.dtype, 1))
            # What is one run's poison in both of them, the other run has written.
            both |= complete & (got == other)
            nearness = _near(tolerance, places)
            near = agree(other_values, first_values, nearness)
            if tolerance.share:
                near |= within_step(other_values, first_values, nearness)
            steady = both & ((got == other) | near)
            changed = np.flatnonzero(both & ~steady)
            if complete and changed.size:
                return _unsteady(spec, int(places[changed[0]]), changed.size), Checked(checked)
            if not complete:
                known = _known(spec, outputs[0], passed, got) & _untouched(spec, places, outputs[0])
                hanging += int((both & ~(steady & known)).sum())
                steady &= known
            passed += got.nbytes
            _weigh(spec, places, got, (path, tolerance), [], found, compare=steady, certain=both)
        if found.is_wrong(tolerance):
            which = "written by the whole grid" if complete else "that the blocks wrote"
            return _wrong(spec, found, which), Checked(checked)
        unsteady += hanging
        found.checked += _like_poison(spec, path, first, second) if complete else 0
        missing = spec.numel - found.checked
        if complete and missing > 0:
            return _mismatch(
                f"at full dimensions {missing} of {spec.numel} elements of {spec.name} are not "
                "written, though all blocks were run"
            ), Checked(checked)
        checked += found.checked
        uncompared += [] if found.checked else [spec.name]
    withheld = f"{unsteady} elements hang on blocks that were not run" if unsteady else ""
    told = _checked(task, kernels, checked, withheld)
    return None, replace(told, orders=2, uncompared=tuple(uncompared))


def verified_by_sample(checked: Checked) -> StageResult:
    """Return the verdict on a task of which nothing but a sample of each kernel's blocks is run.

    `checked` says what two runs of them came to that did not fail (`judge_wide`). All that these
    blocks wrote must have been compared: a kernel that looks at what others leave, and so may know
    that few of them run, passes nothing here.
    """
    why = checked.withheld
    if checked.uncompared and not why:
        why = f"nothing that the blocks wrote to {', '.join(checked.uncompared)} could be compared"
    if why or not checked.elements:
        reason = (
            "nothing smaller than the full dimensions runs, and a sample of the blocks does not "
            f"tell right from wrong there: {why or 'nothing was compared'}; let blocks not depend "
            "on each other, choose smaller sizes with --set NAME=VALUE, or verify it on a GPU"
        )
        return StageResult(
            outcome=Outcome.UNSUPPORTED, reason=reason,
            diagnostics=(Diagnostic(kind="not_compared", message=reason),),
        )  # fmt: skip
    return StageResult(
        outcome=Outcome.PASSED,
        facts={"verified_by_sample": f"at full dimensions, {checked.in_words}"},
    )


def _kernels(launches: Sequence[LaunchReport | TransferReport]) -> list[LaunchReport]:
    return [launch for launch in launches if not isinstance(launch, TransferReport)]


def _transfers(launches: Sequence[LaunchReport | TransferReport]) -> list[TransferReport]:
    return [launch for launch in launches if isinstance(launch, TransferReport)]


def _checked(
    task: Task, kernels: Sequence[LaunchReport], elements: int, withheld: str
) -> Checked:
    total = sum(spec.numel for spec in task.full.of_role("output"))
    return Checked(
        elements, withheld, share=elements / max(1, total),
        blocks=min((kernel.sampled_blocks / kernel.blocks for kernel in kernels), default=1.0),
        race_checked=sum(kernel.race_checked_blocks for kernel in kernels),
    )  # fmt: skip


def _percent(share: float) -> str:
    return "all" if share >= 1 else f"{100 * share:.2g} %"


def _poison(dtype: np.dtype[Any], again: int) -> int:
    """Return the bits of an element that nobody wrote, in the first of two runs or the second."""
    return int.from_bytes(bytes([FULL_SIZE_POISON[again][0]]) * dtype.itemsize, "little")


def _like_poison(spec: TensorSpec, answers: Path, first: _Pages, second: _Pages) -> int:
    """Count the elements of whole pages that are rightly the first run's poison, and written.

    The second run tells: there the poison is another.
    """
    right = np.memmap(answers, dtype=f"<u{spec.nbytes // spec.numel}", mode="r")
    count, poison = 0, _poison(right.dtype, 0)
    for start in range(0, spec.numel, CHUNK_PAGES * PAGE):
        alike = start + np.flatnonzero(right[start : start + CHUNK_PAGES * PAGE] == poison)
        alike = alike[~first.hold(alike)]
        count += int((second.at(alike, alike.size) == poison).sum())
    return count


def nothing_launched(task: Task) -> StageResult | None:
    """Return the failure of a launch() that started no work; None for outputs of no elements."""
    written = [spec.name for spec in task.full.of_role("output") if spec.numel]
    if not written:
        return None
    return _mismatch(
        f"at full dimensions launch() started no kernel and no copy: {written[0]} is not written"
    )


def _not_final(launches: Sequence[LaunchReport | TransferReport], place: int) -> str:
    """Return why what is in an output may change when all blocks run; empty where it stays.

    It may where a launch goes by what blocks that were not run would have written, where one of
    which blocks are missing overwrites what another wrote, and where the blocks of one join what
    they have found.
    """
    partial: set[int | None] = set()
    """Places that hold less than all blocks would have left there."""
    ranges: list[Written] = []
    for each in launches:
        if isinstance(each, TransferReport):
            if each.copy and each.source_place in partial:
                partial.add(each.place)
            continue
        goes_by_part = not partial.isdisjoint(each.read)
        own = each.written.get(place)
        if own and goes_by_part:
            return "a launch reads what another writes"
        if own and each.joins_blocks:
            return "blocks use atomics and read what the launch writes"
        if own and not each.complete:
            for its in ranges:
                if max(own.first, its.first) < min(own.end, its.end):
                    return "a launch overwrites what another writes"
        if own:
            ranges.append(own)
        if goes_by_part or not each.complete:
            partial.update(each.written)
    return ""


def _carried(
    kernels: Sequence[LaunchReport], transfers: Sequence[TransferReport], place: int
) -> list[TransferReport]:
    """Return the copies that take to an output what launches wrote elsewhere."""
    written = {source for kernel in kernels for source in kernel.written}
    return [
        each
        for each in transfers
        if each.copy and each.place == place and each.source_place in written - {place}
    ]


def _is_last(
    launches: Sequence[LaunchReport | TransferReport],
    place: int,
    carried: Sequence[TransferReport],
) -> bool:
    """Say whether each copied element is what one block left there, or nobody: then it counts."""
    kernels, sources = _kernels(launches), {each.source_place for each in carried}
    if any(place in kernel.written or place in kernel.read for kernel in kernels):
        return False
    if any(each.place == place and each not in carried for each in _transfers(launches)):
        return False
    return not (
        any(kernel.atomic_lines and not kernel.complete for kernel in kernels)
        or any(each.place in sources for each in _transfers(launches))
        or any(source is not None and _not_final(launches, source) for source in sources)
    )


def _untouched(spec: TensorSpec, places: NDArray[np.int64], outputs: Path) -> NDArray[np.bool_]:
    """Say which elements no atomic has touched: what a block stored there is its last word."""
    path = outputs / f"{spec.name}.atomics"
    if not path.is_file():
        return np.ones(places.size, bool)
    sectors = np.fromfile(path, dtype=np.int64)
    return ~np.isin(places * (spec.nbytes // spec.numel) // SECTOR, sectors)


def _by_kernels(
    kernels: Sequence[LaunchReport], place: int, really_written: int | None
) -> float:
    """Return the estimated bytes of an allocation that all launches write, each byte once.

    Blocks count whole sectors; where the bytes that the sampled ones left are known, that corrects
    the estimate.
    """
    found = [kernel.written[place] for kernel in kernels if place in kernel.written]
    if not found:
        return 0.0
    sampled = sum(each.sampled_bytes for each in found)
    density = 1.0 if really_written is None else min(1.0, really_written / max(sampled, 1.0))
    estimates = [min(each.span, each.grid_bytes * density) for each in found]
    if len(found) == 1:
        return float(estimates[0])
    union, reached = 0, 0
    for each in sorted(found, key=lambda each: each.first):
        union += max(0, each.end - max(each.first, reached))
        reached = max(reached, each.end)
    widest = max(each.span / max(1, each.end - each.first) for each in found)
    return float(min(sum(estimates), widest * union))


def _copied_from_kernels(
    kernels: Sequence[LaunchReport], into: Sequence[TransferReport]
) -> float:
    """Return the bytes that copies carry from where kernels wrote them (the workspace)."""
    return sum(
        min(float(each.width * each.height), _by_kernels(kernels, each.source_place, None))
        for each in into
        if each.copy and each.source_place is not None
    )


def _written_elements(
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


def _near(tolerance: RowTolerance, places: NDArray[np.int64]) -> Nearness:
    """Return what elements at some places may differ by."""
    kinds = places // tolerance.row % len(tolerance.absolute)
    return Nearness(
        np.array(tolerance.absolute)[kinds], np.array(tolerance.relative)[kinds],
        tolerance.step, tolerance.least_step,
    )  # fmt: skip


def _known(
    spec: TensorSpec, outputs: Path, start: int, got: NDArray[Any]
) -> NDArray[np.bool_]:
    """Say which elements hold what they would had all blocks run, of those from a byte on."""
    whole = np.memmap(outputs / f"{spec.name}.known", dtype=np.uint8, mode="r")
    bits = np.asarray(whole[start : start + got.nbytes])
    if bits.size != got.nbytes:
        raise Malformed(f"{spec.name}: what was followed is not whole")
    return np.asarray(bits.reshape(-1, got.itemsize).all(axis=1))


class _Pages:
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
        poison = _poison(np.dtype(f"<u{self._item}"), self._again)
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


def _weigh(
    spec: TensorSpec,
    places: NDArray[np.int64],
    got: NDArray[Any],
    known: tuple[Path, RowTolerance] | None,
    into: Sequence[TransferReport],
    found: _Found,
    *,
    compare: NDArray[np.bool_] | None,
    carried: Sequence[TransferReport] = (),
    certain: NDArray[np.bool_] | None = None,
) -> None:
    """Add some elements of an output to what was found; `compare` says which are final.

    Of what was `carried` to the output that counts which is not the workspace's poison. What is
    `certain` was written, whatever it is.
    """
    item = got.itemsize
    written = got != np.iinfo(got.dtype).max
    if certain is not None:
        written |= certain
    copied, filled = np.zeros(got.size, bool), np.zeros(got.size, bool)
    for each in into:
        inside = _inside(each, places * item)
        if each.copy:
            copied |= inside
        else:
            filled |= inside & (got == int.from_bytes(bytes([each.value]) * item, "little"))
    by_kernel = written & ~copied & ~filled
    settled = by_kernel.copy()
    for each in carried:
        left = got != int.from_bytes(bytes([PROFILED_WORKSPACE]) * item, "little")
        settled |= _inside(each, places * item) & left & written
    right = np.zeros(got.size, bool)
    if known:
        answers, tolerance = known
        # Pages lie in order, so this reads the file from front to back.
        wanted = np.array(np.memmap(answers, dtype=got.dtype, mode="r")[places])
        values = decode_elements(got.tobytes(), spec.dtype)
        expected = decode_elements(wanted.tobytes(), spec.dtype)
        nearness = _near(tolerance, places)
        right = agree(values, expected, nearness) | (got == wanted)
        if compare is not None:
            wrong = np.flatnonzero(settled & compare & ~right)
            found.checked += int((settled & compare).sum())
            found.by_atomics += int((settled & ~compare).sum())
            found.wrong += wrong.size
            if tolerance.share:
                near = within_step(values[wrong], expected[wrong], nearness.at(wrong))
                found.stepped += int(near.sum())
            if wrong.size and found.first is None:
                at = wrong[0]
                found.first = (int(places[at]), float(expected[at]), float(values[at]))
    by_transfers = (copied | filled) & ~by_kernel
    found.by_transfers += item * int((by_transfers & right if known else by_transfers).sum())
    # An element whose right value is the poison's own bits cannot be told from an unwritten one.
    whole = by_kernel | (right & ~written)
    if copied.any() and not whole.any():
        return
    found.written = (found.written or 0) + item * int(whole.sum())


def _inside(transfer: TransferReport, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which byte offsets of an output a transfer wrote."""
    row, column = np.divmod(offsets - transfer.offset, max(1, transfer.pitch))
    return np.asarray((row >= 0) & (row < transfer.height) & (column < transfer.width))


def _wrong(
    spec: TensorSpec, found: _Found, which: str = "that the sampled blocks wrote"
) -> StageResult:
    assert found.first is not None
    flat, expected, got = found.first
    index = ", ".join(str(int(i)) for i in np.unravel_index(flat, spec.shape)) if spec.shape else ""
    return _mismatch(
        f"at full dimensions {spec.name}[{index}]: expected {expected:.7g}, got {got:.7g}; "
        f"{found.wrong} of {found.checked} elements {which} differ"
    )


def _unsteady(spec: TensorSpec, place: int, count: int) -> StageResult:
    index = ", ".join(map(str, map(int, np.unravel_index(place, spec.shape)))) if spec.shape else ""
    reason = (
        "at full dimensions two runs of all blocks, with other poison and in another order of "
        f"warps and blocks, disagree: {spec.name}[{index}], and {count - 1} elements near it"
    )
    return StageResult(
        outcome=Outcome.NONDETERMINISTIC, reason=reason,
        diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
    )  # fmt: skip


def _mismatch(reason: str) -> StageResult:
    return StageResult(
        outcome=Outcome.WRONG_ANSWER, reason=reason,
        diagnostics=(Diagnostic(kind="mismatch", message=reason),),
    )  # fmt: skip


def _incomplete(spec: TensorSpec, share: float) -> StageResult:
    reason = (
        f"the sampled blocks write only {100 * share:.0f} % of {spec.name} at full dimensions: "
        "this launch cannot be timed by sampling"
    )
    return StageResult(
        outcome=Outcome.UNSUPPORTED, reason=reason,
        diagnostics=(Diagnostic(kind=NOT_WRITTEN, message=reason),),
    )  # fmt: skip
