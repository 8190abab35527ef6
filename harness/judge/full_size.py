"""Judges what the sampled blocks wrote at full dimensions: is it right, and is it all.

Blocks are sampled, so nothing proves a whole answer; but what was written must be PyTorch's, and
the launches must write, by estimate, nearly all of every output. Otherwise the time would be that
of a kernel that does its work at the shrunken dimensions only. Where all blocks were run, the
whole answer is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records.evaluations import StageResult
from ..records.tasks import Task
from ..records.tensors import TensorSpec
from ..task.full_case import FullCase, RowTolerance
from ..task.rules import NOT_COMPARED
from .border import Malformed
from .full_size_findings import (
    Checked,
    Found,
    incomplete,
    joined_by_others,
    mismatch,
    reads_unwritten,
    unsteady_answer,
    wrong_answer,
)
from .launch_writes import (
    Launches,
    bytes_by_kernels,
    bytes_copied_from_kernels,
    carried_to,
    goes_by_part,
    is_last,
    is_unsure,
    kernels_of,
    not_final,
    reached,
    read_unwritten,
    still_to_come,
    transfers_of,
)
from .left_pages import (
    SECTOR,
    Pages,
    known_elements,
    left_open,
    like_poison,
    poison_bits,
    untouched,
    written_elements,
)
from .poison import PROFILED_WORKSPACE
from .reports import LaunchReport, TransferReport
from .verification import Nearness, agree, decode_elements, number_at, within_step

LEAST_WRITTEN = 0.99
"""Share of each output that the launches of one call must write, by estimate."""
UNLOOKED = 0.9
"""The same where PyTorch's answer is not known: what is the poison's own bits looks unwritten."""
LEAST_JOINED = 0.99
"""Share of the sectors that atomics touched in which something must be PyTorch's answer where not
all blocks ran: chance makes no part of a sum equal to the whole. Not all of a sector, in which
neighbours of what these blocks join may lie, that others do."""

LEAST_RIGHT = 0.75
"""The same of all elements in these sectors: of two elements at the ends of a tile's rows others
join the sector."""
MOST_OPEN = 0.5
"""Of these sectors, in which blocks take part of which it is known that they did not run."""


def judge_full_size(
    task: Task,
    case: FullCase | None,
    launches: Launches,
    outputs: Path,
) -> tuple[StageResult | None, Checked]:
    """Return the failure that a profile run shows, if any, and what was compared.

    Raises Malformed where what the child left cannot be.
    """
    checked = by_atomics = 0
    imprecise: list[str] = []
    kernels, transfers = kernels_of(launches), transfers_of(launches)
    reasons: list[str] = []
    for place, spec in enumerate(task.full.of_role("output")):
        if not spec.numel:
            continue
        into = [transfer for transfer in transfers if transfer.place == place]
        tolerance = case.tolerances[place] if case else None
        known = (Path(case.answers, f"{spec.name}.bin"), tolerance) if case and tolerance else None
        found = Found()
        carried = carried_to(kernels, transfers, place)
        unlooked = bool(carried) and not is_last(launches, place, carried)
        reason = "" if case is None else not_final(launches, place)
        if unlooked and case:
            reason = reason or "copies carry what launches wrote in part"
        if reason:
            reasons.append(reason)
        dump = outputs / f"{spec.name}.pages"
        if dump.is_file():
            found.written = None if any(each.copy for each in into) else 0
            for places, got in written_elements(spec, outputs):
                compare = None if reason or not case else untouched(spec, places, outputs)
                settled = [] if unlooked else carried
                _weigh(spec, places, got, known, into, found, compare=compare, carried=settled)
        else:
            found.by_transfers = float(sum(each.width * each.height for each in into))
        if found.is_wrong(tolerance):
            return wrong_answer(spec, found), Checked(checked)
        checked += found.checked
        imprecise += _imprecise(spec, case, tolerance, found)
        by_atomics += found.by_atomics
        found.by_transfers += bytes_copied_from_kernels(kernels, into)
        seen = None if goes_by_part(launches, place) else found.written
        share = (bytes_by_kernels(kernels, place, seen) + found.by_transfers) / spec.nbytes
        if share < (LEAST_WRITTEN if case else UNLOOKED):
            return incomplete(spec, share), Checked(checked)
    if by_atomics:
        reasons.insert(0, f"blocks that were not run may add to {by_atomics} elements by atomics")
    told = _checked(task, kernels, checked, next(iter(reasons), ""))
    return None, replace(told, imprecise=tuple(imprecise))


def judge_wide(
    task: Task,
    case: FullCase,
    launches: Launches,
    outputs: tuple[Path, Path],
) -> tuple[StageResult | None, Checked]:
    """Return how two runs of as many blocks as are affordable fail, and what was compared.

    An element in which they differ is not compared where blocks are missing, as it may hang on
    them; where none are, the answer hangs on the order of blocks or on what nobody wrote.
    Raises Malformed where what the child left cannot be.
    """
    kernels = kernels_of(launches)
    complete = all(kernel.complete for kernel in kernels)
    # Behind what launch() is given, outputs first, lies the workspace.
    own = {*range(len(task.full.of_role("output"))), len(task.full.tensors)}
    if not complete and (unwritten := read_unwritten(launches, LEAST_WRITTEN, own)):
        return reads_unwritten(*unwritten), Checked(0)
    checked = unsteady = 0
    uncompared: list[str] = []
    unproven: list[str] = []
    imprecise: list[str] = []
    for place, spec in enumerate(task.full.of_role("output")):
        if not spec.numel:
            continue
        for folder in outputs:
            if not (folder / f"{spec.name}.pages").is_file():
                raise Malformed(f"{spec.name}: the pages of the output are missing")
        path, tolerance = Path(case.answers, f"{spec.name}.bin"), case.tolerances[place]
        if tolerance is None:
            imprecise += _imprecise(spec, case, tolerance, Found())
            continue
        first, second = (Pages(spec, outputs, again) for again in (0, 1))
        found, hanging, passed = Found(), Hanging(spec.nbytes), 0
        for places, got in written_elements(spec, outputs[0]):
            other = second.at(places, got.size)
            first_values = decode_elements(got.tobytes(), spec.dtype)
            other_values = decode_elements(other.tobytes(), spec.dtype)
            both = (got != poison_bits(got.dtype, 0)) & (other != poison_bits(got.dtype, 1))
            # What is one run's poison in both of them, the other run has written.
            both |= complete & (got == other)
            nearness = _near(tolerance, places)
            near = agree(other_values, first_values, nearness)
            if tolerance.share:
                near |= within_step(other_values, first_values, nearness)
            alike = (got == other) | near
            steady = both & alike
            changed = np.flatnonzero(both & ~steady)
            if complete and changed.size:
                disagree = unsteady_answer(spec, int(places[changed[0]]), changed.size)
                return disagree, Checked(checked)
            if not complete:
                alone = untouched(spec, places, outputs[0])
                settled = known_elements(spec, outputs[0], passed, got) & alone
                differ = np.flatnonzero(both & settled & ~alike)
                if differ.size:
                    return unsteady_answer(
                        spec, int(places[differ[0]]), differ.size, "the same blocks"
                    ), Checked(checked)
                steady &= settled
                if (both & ~steady).any():
                    right, _, _ = _answered(spec, places, got, path, nearness)
                    sectors = places * got.itemsize // SECTOR
                    others = left_open(spec, places, outputs[0])
                    hanging.add(both & ~steady, right & alike, alone, others, sectors)
            passed += got.nbytes
            _weigh(spec, places, got, (path, tolerance), [], found, compare=steady, certain=both)
        if found.is_wrong(tolerance):
            which = "written by the whole grid" if complete else "that the blocks wrote"
            return wrong_answer(spec, found, which), Checked(checked)
        if not complete:
            share = _share_at_most(launches, place, spec, found)
            share = min(share, hanging.share_at_most(still_to_come(launches, place)))
            if share < LEAST_WRITTEN:
                return incomplete(spec, share), Checked(checked)
            if is_unsure(kernels, place):
                unproven.append(spec.name)
        if not hanging.joins_rightly:
            joined, rightly, *_ = hanging.joined
            return joined_by_others(spec, joined - rightly, joined), Checked(checked)
        unsteady += hanging.elements - hanging.joined.rightly
        found.checked += hanging.joined.rightly
        found.checked += like_poison(spec, path, first, second) if complete else 0
        missing = spec.numel - found.checked - found.unjudged
        if complete and missing > 0:
            return mismatch(
                f"at full dimensions {missing} of {spec.numel} elements of {spec.name} are not "
                "written, though all blocks were run"
            ), Checked(checked)
        checked += found.checked
        uncompared += [] if found.checked or found.unjudged else [spec.name]
        imprecise += _imprecise(spec, case, tolerance, found)
    withheld = f"{unsteady} elements hang on blocks that were not run" if unsteady else ""
    told = _checked(task, kernels, checked, withheld)
    return None, replace(
        told, orders=2, uncompared=tuple(uncompared), unproven=tuple(unproven),
        imprecise=tuple(imprecise),
    )  # fmt: skip


class Joined(NamedTuple):
    """Elements that atomics touched, and the sectors in which they lie."""

    elements: int = 0
    rightly: int = 0
    """Elements that are the answer."""
    sectors: int = 0
    wrong_sectors: int = 0
    """Those without one element that is the answer, or with another between two that are: a part of
    the terms often has the same extreme as all. At an end of a sector lies what others join."""


@dataclass
class Hanging:
    """Elements of an output that hang on blocks that were not run, and those that are the answer.
    """

    nbytes: int
    """Of the output."""
    elements: int = 0
    rightly: int = 0
    joined: Joined = Joined()
    left_open: Joined = Joined()
    """Of these, those in sectors that blocks join of which it is known that they did not run."""

    def add(
        self, hang: NDArray[np.bool_], right: NDArray[np.bool_], alone: NDArray[np.bool_],
        left_open: NDArray[np.bool_], sectors: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Add whole sectors of elements.

        Args:
            hang: which elements hang on others.
            right: which are the answer.
            alone: which no atomic has touched.
            left_open: which blocks join of which it is known that they did not run.
            sectors: where each lies.
        """
        self.elements += int(hang.sum())
        self.rightly += int((hang & right).sum())
        joined = hang & ~alone
        if not joined.any():
            return
        _, starts, place = np.unique(sectors[joined], return_index=True, return_inverse=True)
        at, rightly = np.arange(place.size), right[joined]
        first = np.minimum.reduceat(np.where(rightly, at, at.size), starts)
        last = np.maximum.reduceat(np.where(rightly, at, -1), starts)
        between = ~rightly & (first[place] < at) & (at < last[place])
        wrong = (last < 0) | np.logical_or.reduceat(between, starts)
        is_open = np.logical_or.reduceat(left_open[joined], starts)

        def more(before: Joined, which: NDArray[np.bool_]) -> Joined:
            each = which[place]
            found = (each, each & rightly, which, which & wrong)
            return Joined(*(old + int(new.sum()) for old, new in zip(before, found, strict=True)))

        self.joined = more(self.joined, np.ones(starts.size, bool))
        self.left_open = more(self.left_open, is_open)

    @property
    def joins_rightly(self) -> bool:
        """Whether nearly all sectors that atomics touched hold something that is the answer.

        And most of the elements there. Those are left out that are known to want more, where these
        are few.
        """
        judged = self.joined
        if self.left_open.sectors <= MOST_OPEN * judged.sectors:
            judged = Joined(*map(int.__sub__, judged, self.left_open))
        enough = judged.rightly >= LEAST_RIGHT * judged.elements
        return enough and judged.sectors - judged.wrong_sectors >= LEAST_JOINED * judged.sectors

    def share_at_most(self, still_to_come: float) -> float:
        """Return how much of the output can be right in the end, by what its launches write.

        What earlier launches left there and is not the answer, others would have to write, which is
        `still_to_come`: a fill before does not make up for what they leave out.
        """
        others = self.elements - self.joined.elements
        if not others:
            return 1.0
        wrong = 1 - (self.rightly - self.joined.rightly) / others
        return 1 - max(0.0, wrong - still_to_come / self.nbytes)


def _share_at_most(
    launches: Launches, place: int, spec: TensorSpec, found: Found
) -> float:
    """Return how much of an output a call writes at most: copies and fills may all be of use."""
    into = [each for each in transfers_of(launches) if each.place == place]
    seen = None if into or goes_by_part(launches, place) else found.written
    written = bytes_by_kernels(kernels_of(launches), place, seen)
    return (written + sum(each.width * each.height for each in into)) / spec.nbytes


def _checked(
    task: Task, kernels: Sequence[LaunchReport], elements: int, withheld: str
) -> Checked:
    total = sum(spec.numel for spec in task.full.of_role("output"))
    return Checked(
        elements, withheld, share=elements / max(1, total),
        blocks=min((kernel.sampled_blocks / kernel.blocks for kernel in kernels), default=1.0),
        race_checked=sum(kernel.race_checked_blocks for kernel in kernels),
    )  # fmt: skip


def _imprecise(
    spec: TensorSpec, case: FullCase | None, tolerance: RowTolerance | None, found: Found
) -> list[str]:
    """Return what of an output PyTorch's own answer, known as it is, does not tell, in words."""
    if case is None or not (tolerance is None or found.unjudged):
        return []
    if tolerance is None:
        return [f"all of {spec.name}"]
    kinds = [
        name for name, absolute in zip(case.rows, tolerance.absolute, strict=False)
        if absolute >= NOT_COMPARED
    ]  # fmt: skip
    return [f"rows of {spec.name} of inputs that are {', '.join(kinds)}"]


def _weigh(
    spec: TensorSpec,
    places: NDArray[np.int64],
    got: NDArray[Any],
    known: tuple[Path, RowTolerance] | None,
    into: Sequence[TransferReport],
    found: Found,
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
        inside = reached(each, places * item)
        if each.copy:
            copied |= inside
        else:
            filled |= inside & (got == int.from_bytes(bytes([each.value]) * item, "little"))
    by_kernel = written & ~copied & ~filled
    settled = by_kernel.copy()
    for each in carried:
        left = got != int.from_bytes(bytes([PROFILED_WORKSPACE]) * item, "little")
        settled |= reached(each, places * item) & left & written
    right = np.zeros(got.size, bool)
    if known:
        answers, tolerance = known
        nearness = _near(tolerance, places)
        right, values, expected = _answered(spec, places, got, answers, nearness)
        if compare is not None:
            wrong = np.flatnonzero(settled & compare & ~right)
            judged = nearness.absolute < NOT_COMPARED
            found.checked += int((settled & compare & judged).sum())
            found.unjudged += int((settled & compare & ~judged).sum())
            found.by_atomics += int((settled & ~compare).sum())
            found.wrong += wrong.size
            if tolerance.share:
                off = _near(tolerance, places[wrong])
                near = within_step(values[wrong], expected[wrong], off)
                found.stepped += int(near.sum())
            if wrong.size and found.first is None:
                at = wrong[0]
                found.first = (int(places[at]), float(expected[at]), number_at(values, at))
    by_transfers = (copied | filled) & ~by_kernel
    found.by_transfers += item * int((by_transfers & right if known else by_transfers).sum())
    # An element whose right value is the poison's own bits cannot be told from an unwritten one.
    whole = by_kernel | (right & ~written)
    if copied.any() and not whole.any():
        return
    found.written = (found.written or 0) + item * int(whole.sum())


def _answered(
    spec: TensorSpec, places: NDArray[np.int64], got: NDArray[Any], answers: Path,
    nearness: Nearness,
) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Return which elements are PyTorch's, what they are, and what they should be."""
    # Pages lie in order, so this reads the file from front to back.
    wanted = np.array(np.memmap(answers, dtype=got.dtype, mode="r")[places])
    values = decode_elements(got.tobytes(), spec.dtype)
    expected = decode_elements(wanted.tobytes(), spec.dtype)
    right = agree(values, expected, nearness) | (got == wanted)
    return right, values, expected


def _near(tolerance: RowTolerance, places: NDArray[np.int64]) -> Nearness:
    """Return what elements at some places may differ by."""
    rows = places // tolerance.row
    kinds = (rows % tolerance.rows if tolerance.rows else rows) % len(tolerance.absolute)
    return Nearness(
        np.array(tolerance.absolute)[kinds], np.array(tolerance.relative)[kinds],
        tolerance.step, tolerance.least_step,
    )  # fmt: skip
