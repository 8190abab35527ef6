"""What is said of memory that blocks left at full dimensions, made by hand: no kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelblaster.harness.judge.border import Malformed
from kernelblaster.harness.judge.full_size import judge_full_size, judge_wide
from kernelblaster.harness.judge.full_size_findings import (
    NOT_WRITTEN,
    nothing_launched,
    verified_by_sample,
)
from kernelblaster.harness.judge.poison import FULL_SIZE_POISON, PROFILED_WORKSPACE
from kernelblaster.harness.judge.reports import TransferReport, Written
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.task.full_case import FullCase, RowTolerance
from kernelblaster.harness.task.rules import NOT_COMPARED, TOLERANCES

OUTPUT, WORKSPACE, INPUT = 0, 1, 2
"""Places of the allocations."""
ROWS, COLUMNS = 6, 700
BYTES = 4 * ROWS * COLUMNS
"""Four pages and a part of a fifth."""
PAGE = 4096
ATTRIBUTES = dict[str, Any]


@dataclass
class Ran:
    """A launch as a report tells of it."""

    written: dict[int, Written] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    read_bytes: dict[int, int] = field(default_factory=dict)
    kernel: str = "k"
    atomic_lines: float = 0.0
    joins_blocks: bool = False
    blocks: int = 8
    sampled_blocks: int = 4
    race_checked_blocks: int = 1

    @property
    def complete(self) -> bool:
        return self.sampled_blocks >= self.blocks


def wrote(first: int = 0, end: int = BYTES, **changes: float) -> Written:
    """Return what a launch writes of which half the blocks ran: all from `first` to `end`."""
    size = float(end - first)
    found = {"grid_bytes": size, "sampled_bytes": size / 2, "span": size} | changes
    return Written(first=first, end=end, **found)


def transfer(**changes: Any) -> TransferReport:
    """Return a copy from the workspace over the whole output, changed."""
    own = {"copy": True, "value": 0, "read": BYTES, "written": BYTES, "place": OUTPUT,
           "source_place": WORKSPACE, "offset": 0, "pitch": BYTES, "width": BYTES,
           "height": 1}  # fmt: skip
    return TransferReport(**(own | changes))


class Example:
    """A task of one output of which PyTorch's answer and what a run left lie in files."""

    def __init__(self, root: Path, dtype: str = "float32", shape: tuple[int, ...] = ()) -> None:
        shape = shape or (ROWS, COLUMNS)
        spec = TensorSpec(name="out0", shape=shape, dtype=dtype, role="output")  # type: ignore[arg-type]
        one = TaskVariant(name="full", dimensions={}, tensors=(spec,))
        self.task = Task(
            name="t", path="t.py", reference_sha256="0", source="", op_class="mixed",
            dtype="float32", tolerance=TOLERANCES["float32"], full=one, verify=one,
        )  # fmt: skip
        tolerance = RowTolerance(absolute=(1e-4, 1.0), relative=(1e-4, 1e-4), row=COLUMNS)
        self.case = FullCase(
            inputs=str(root), answers=str(root / "answers"), tolerances=(tolerance,), rows=("a",),
            exact=True,
        )  # fmt: skip
        values = np.linspace(1, 2, spec.numel)
        self.right: NDArray[Any] = values.astype("f4" if dtype == "float32" else dtype)
        self.folders = root / "one", root / "two"
        for folder in (*self.folders, root / "answers"):
            folder.mkdir()
        self.answer(self.right)

    def answer(self, values: NDArray[Any]) -> None:
        values.tofile(Path(self.case.answers, "out0.bin"))

    def leave(
        self, values: NDArray[Any], written: slice | NDArray[np.bool_] = slice(None),
        run: int = 0, known: bool = True,
    ) -> None:  # fmt: skip
        """Leave elements as a run of the simulated GPU does: its poison where nobody wrote."""
        poison = bytes([FULL_SIZE_POISON[run][0]])
        memory = np.frombuffer(poison * values.nbytes, values.dtype).copy()
        memory[written] = values[written]
        raw = memory.tobytes()
        starts = range(0, len(raw), PAGE)
        pages = [at // PAGE for at in starts if raw[at : at + PAGE].strip(poison)]
        np.array(pages, np.int64).tofile(self.folders[run] / "out0.pages")
        kept = b"".join(raw[page * PAGE : (page + 1) * PAGE] for page in pages)
        (self.folders[run] / "out0.data").write_bytes(kept)
        (self.folders[run] / "out0.known").write_bytes(bytes([known]) * len(kept))

    def judged(self, *launches: Ran | TransferReport, case: bool = True) -> Any:
        return judge_full_size(self.task, self.case if case else None, launches, self.folders[0])

    def wide(self, *launches: Ran | TransferReport) -> Any:
        return judge_wide(self.task, self.case, launches, self.folders)


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path)


FIRST_HALF = slice(0, ROWS * COLUMNS // 2)
HALF = Ran({OUTPUT: wrote()})
ALL = Ran({OUTPUT: wrote(sampled_bytes=BYTES)}, sampled_blocks=8)


def test_what_half_the_blocks_wrote_rightly_passes_and_is_counted(example: Example) -> None:
    example.leave(example.right, FIRST_HALF)
    failed, checked = example.judged(HALF)
    assert failed is None
    assert checked.facts == {
        "full_size_checked": 2100,
        "full_size_coverage": "50 % of the elements compared; 50 % of the blocks run, in one "
        "order, 1 of them with all checks",
    }
    assert checked.diagnostics == ()


@pytest.mark.parametrize(
    ("at", "by", "text"),
    [
        (3, 1.0, "out0[0, 3]: expected 1.000714, got 2.000714; 1 of 2100 elements that the sampled "
                 "blocks wrote differ"),
        (1400, 1.0, "out0[2, 0]: "), (1399, 0.9, ""), (2099, 1e-3, "out0[2, 699]: "),
        (2100, 9.0, ""),
    ],
)  # fmt: skip
def test_each_row_has_its_tolerance(example: Example, at: int, by: float, text: str) -> None:
    left = example.right.copy()
    left[at] += by
    example.leave(left, FIRST_HALF)
    failed, _ = example.judged(HALF)
    assert (failed is None) is (not text)
    if failed:
        assert failed.outcome is Outcome.WRONG_ANSWER
        assert failed.reason.startswith(f"at full dimensions {text}")


def test_all_wrong_elements_are_counted_and_the_first_is_told(example: Example) -> None:
    left = example.right.copy()
    left[[5, 2000, 4100]] += 7
    example.leave(left)
    failed, _ = example.judged(ALL)
    assert "out0[0, 5]" in failed.reason and "3 of 4200 elements" in failed.reason


@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        (wrote(), Outcome.PASSED),
        (wrote(grid_bytes=0.98 * BYTES), Outcome.UNSUPPORTED),
        (wrote(grid_bytes=0.99 * BYTES), Outcome.PASSED),
        (wrote(span=0.5 * BYTES), Outcome.UNSUPPORTED),
        (wrote(sampled_bytes=BYTES), Outcome.UNSUPPORTED),
        (wrote(sampled_bytes=BYTES / 4), Outcome.PASSED),
    ],
    ids=["all", "a little less", "just enough", "a part of it", "sectors in part", "denser"],
)  # fmt: skip
def test_what_all_blocks_would_write_must_be_nearly_all(
    example: Example, written: Written, outcome: Outcome
) -> None:
    example.leave(example.right, FIRST_HALF)
    failed, _ = example.judged(Ran({OUTPUT: written}))
    assert (failed.outcome if failed else Outcome.PASSED) is outcome
    if failed:
        assert failed.diagnostics[0].kind == NOT_WRITTEN


@pytest.mark.parametrize(
    ("first", "second", "enough"),
    [
        (wrote(end=BYTES // 2), wrote(first=BYTES // 2), True),
        (wrote(end=BYTES // 2), wrote(end=BYTES // 2), False),
        (wrote(end=BYTES // 2), wrote(first=BYTES // 2, grid_bytes=1000), False),
        (wrote(end=BYTES // 2), wrote(first=BYTES // 4, end=3 * BYTES // 4), False),
        (wrote(end=BYTES // 2), wrote(first=BYTES // 4), True),
    ],
    ids=["halves", "one half twice", "little of a half", "overlapping", "overlapping, all"],
)
def test_what_several_launches_write_counts_once(
    example: Example, first: Written, second: Written, enough: bool
) -> None:
    example.leave(example.right, FIRST_HALF)
    for order in ((first, second), (second, first)):
        failed, _ = example.judged(*(Ran({OUTPUT: each}) for each in order))
        assert (failed is None) is enough


def test_without_an_answer_only_how_much_is_written_is_judged(example: Example) -> None:
    example.leave(example.right + 7, FIRST_HALF)
    failed, checked = example.judged(HALF, case=False)
    assert failed is None and checked.elements == 0
    failed, _ = example.judged(Ran({OUTPUT: wrote(end=BYTES // 2)}), case=False)
    assert failed.outcome is Outcome.UNSUPPORTED
    example.case = example.case.model_copy(update={"tolerances": (None,)})
    assert example.judged(HALF)[0] is None


@pytest.mark.parametrize(("dtype", "poison"), [("float32", "<u4"), ("int64", "<i8")])
def test_a_right_value_of_the_poison_s_bits_counts_as_written(
    tmp_path: Path, dtype: str, poison: str
) -> None:
    example = Example(tmp_path, dtype)
    example.right[:] = np.full(example.right.size, np.iinfo(poison).max if "u" in poison else -1,
                               poison).view(example.right.dtype)  # fmt: skip
    example.right[::7] = 3
    example.answer(example.right)
    example.leave(example.right)
    written = wrote(sampled_bytes=example.right.nbytes, grid_bytes=example.right.nbytes,
                    span=example.right.nbytes, end=example.right.nbytes)  # fmt: skip
    failed, checked = example.judged(Ran({OUTPUT: written}))
    assert failed is None and checked.elements == 600


def test_what_atomics_touched_is_not_compared_and_that_is_said(example: Example) -> None:
    left = example.right.copy()
    left[8:16] += 5
    example.leave(left, FIRST_HALF)
    assert example.judged(HALF)[0].outcome is Outcome.WRONG_ANSWER
    np.array([1], np.int64).tofile(example.folders[0] / "out0.atomics")
    failed, checked = example.judged(HALF)
    assert failed is None and checked.elements == 2092
    assert checked.withheld == "blocks that were not run may add to 8 elements by atomics"
    assert checked.diagnostics[0].message.startswith("at full dimensions part of the answer was")
    left[16] += 5
    example.leave(left, FIRST_HALF)
    assert example.judged(HALF)[0].outcome is Outcome.WRONG_ANSWER


READS = "a launch reads what another writes"
OVERWRITES = "a launch overwrites what another writes"
JOINS = "blocks use atomics and read what the launch writes"
TO_WORKSPACE = Ran({WORKSPACE: wrote()})
ALL_TO_WORKSPACE = Ran({WORKSPACE: wrote()}, sampled_blocks=8)
FROM_WORKSPACE = Ran({OUTPUT: wrote()}, read=[WORKSPACE])
OVER_FIRST = Ran({OUTPUT: wrote(end=BYTES // 2)})
OVER_SECOND = Ran({OUTPUT: wrote(first=BYTES // 2)})
AWAY = transfer(place=INPUT)


@pytest.mark.parametrize(
    ("launches", "why"),
    [
        ([TO_WORKSPACE, FROM_WORKSPACE], READS),
        ([FROM_WORKSPACE, TO_WORKSPACE], ""),
        ([ALL_TO_WORKSPACE, FROM_WORKSPACE], ""),
        ([TO_WORKSPACE, Ran({INPUT: wrote()}, read=[WORKSPACE], sampled_blocks=8),
          Ran({OUTPUT: wrote()}, read=[INPUT])], READS),
        ([TO_WORKSPACE, AWAY, Ran({OUTPUT: wrote()}, read=[INPUT])], READS),
        ([TO_WORKSPACE, transfer(place=INPUT, copy=False), Ran({OUTPUT: wrote()}, read=[INPUT])],
         ""),
        ([ALL_TO_WORKSPACE, AWAY, Ran({OUTPUT: wrote()}, read=[INPUT])], ""),
        ([HALF, HALF], OVERWRITES),
        ([OVER_FIRST, OVER_SECOND], ""),
        ([HALF, ALL], ""),
        ([Ran({OUTPUT: wrote()}, sampled_blocks=8), HALF], OVERWRITES),
        ([Ran({OUTPUT: wrote()}, joins_blocks=True)], JOINS),
        ([HALF, Ran({WORKSPACE: wrote()}, joins_blocks=True)], ""),
    ],
)  # fmt: skip
def test_what_may_change_when_all_blocks_run_is_not_compared(
    example: Example, launches: list[Ran | TransferReport], why: str
) -> None:
    left = example.right.copy()
    left[3] += 5
    example.leave(left, FIRST_HALF)
    failed, checked = example.judged(*launches)
    if why:
        assert failed is None and checked.elements == 0 and checked.withheld == why
        assert checked.diagnostics[0].message.startswith("at full dimensions nothing was compared")
    else:
        assert failed.outcome is Outcome.WRONG_ANSWER


def fill(value: int = 0, **changes: Any) -> TransferReport:
    return transfer(copy=False, value=value, source_place=None, **changes)


def test_a_fill_counts_where_it_is_right(example: Example) -> None:
    example.right[:] = 0
    example.answer(example.right)
    example.leave(example.right)
    assert example.judged(fill())[0] is None
    assert example.judged(fill(), case=False)[0] is None
    example.right[1000:] = 1
    example.answer(example.right)
    assert example.judged(fill())[0].outcome is Outcome.UNSUPPORTED
    assert example.judged(fill(), case=False)[0] is None
    one = 2 * COLUMNS * 4
    in_part = fill(offset=0, pitch=one, width=one // 2, height=3)
    assert example.judged(in_part, case=False)[0].outcome is Outcome.UNSUPPORTED


def test_what_a_kernel_writes_over_a_fill_is_its_own(example: Example) -> None:
    left = example.right.copy()
    left[FIRST_HALF.stop :] = 0
    example.leave(left)
    failed, checked = example.judged(fill(), HALF)
    assert failed is None and checked.elements == 2100
    left[7] = -1
    example.leave(left)
    assert example.judged(fill(), HALF)[0].outcome is Outcome.WRONG_ANSWER


def test_pitched_transfers_reach_their_rows_only(example: Example) -> None:
    example.right[:] = 0
    example.answer(example.right)
    example.leave(example.right)
    row = 4 * COLUMNS
    for height, enough in ((ROWS, True), (ROWS - 1, False)):
        rows = fill(pitch=row, width=row, height=height)
        # What no transfer wrote a kernel did, of which nothing was reported.
        failed, checked = example.judged(rows)
        assert (failed is None) is enough
        assert checked.elements == (ROWS - height) * COLUMNS
    failed, checked = example.judged(fill(offset=row, pitch=row, width=row - 4, height=ROWS - 1))
    assert checked.elements == COLUMNS + ROWS - 1


def test_copies_of_what_a_launch_wrote_are_compared_where_one_block_left_it(
    example: Example,
) -> None:
    left = np.full(example.right.size, np.nan, "f4")
    left.view(np.uint8)[:] = PROFILED_WORKSPACE
    left[FIRST_HALF] = example.right[FIRST_HALF]
    example.leave(left)
    failed, checked = example.judged(TO_WORKSPACE, transfer())
    assert failed is None and checked.elements == 2100
    left[9] += 5
    example.leave(left)
    assert example.judged(TO_WORKSPACE, transfer())[0].outcome is Outcome.WRONG_ANSWER
    partly = "copies carry what launches wrote in part"
    for launches in (
        [TO_WORKSPACE, transfer(), Ran({}, read=[OUTPUT])],
        [fill(), TO_WORKSPACE, transfer()],
        [TO_WORKSPACE, fill(place=WORKSPACE), transfer()],
        [Ran({WORKSPACE: wrote()}, atomic_lines=1.0), transfer()],
        [TO_WORKSPACE, TO_WORKSPACE, transfer()],
    ):
        failed, checked = example.judged(*launches)
        assert failed is None and checked.withheld == partly, launches


def test_what_is_carried_to_a_part_is_compared_in_that_part(example: Example) -> None:
    half = transfer(offset=BYTES // 2, width=BYTES // 2, pitch=BYTES // 2)
    left = example.right.copy()
    left[[5, 4000]] += 9
    example.leave(left, slice(2100, None))
    failed, _ = example.judged(TO_WORKSPACE, half)
    assert failed.outcome is Outcome.WRONG_ANSWER
    assert "out0[5, 500]" in failed.reason and "1 of 2100" in failed.reason


def test_copies_carry_no_more_than_kernels_wrote(example: Example) -> None:
    little = Ran({WORKSPACE: wrote(end=BYTES // 2)})
    for launches, enough in (
        ([TO_WORKSPACE, transfer()], True),
        ([little, transfer()], False),
        ([TO_WORKSPACE, transfer(width=BYTES // 2)], False),
        ([TO_WORKSPACE, transfer(width=BYTES // 2, pitch=BYTES // 2, height=2)], True),
        ([Ran({INPUT: wrote()}), transfer()], False),
    ):
        left = np.zeros_like(example.right)
        left.view(np.uint8)[:] = PROFILED_WORKSPACE
        example.leave(left)
        failed, _ = example.judged(*launches)
        assert (failed is None) is enough, launches


def test_an_output_of_which_nothing_is_left_was_written_by_transfers_at_most(
    example: Example,
) -> None:
    assert example.judged(fill())[0] is None
    assert example.judged(fill(width=BYTES // 2))[0].outcome is Outcome.UNSUPPORTED


def pages(*numbers: int) -> Callable[[Example], object]:
    return lambda example: np.array(numbers, np.int64).tofile(example.folders[0] / "out0.pages")


def data(change: int) -> Callable[[Example], object]:
    def cut(example: Example) -> None:
        path = example.folders[0] / "out0.data"
        raw = path.read_bytes()
        path.write_bytes(raw[:change] if change < 0 else raw + bytes(change))

    return cut


@pytest.mark.parametrize(
    "damage",
    [pages(-1, 1, 2, 3, 4), pages(0, 1, 2, 3, 5), pages(0, 2, 1, 3, 4), pages(0, 1, 1, 3, 4),
     pages(0, 1, 2, 3), data(-4), data(4),
     lambda example: (example.folders[0] / "out0.data").unlink()],
)  # fmt: skip
def test_damaged_pages_are_malformed(example: Example, damage: Callable[[Example], object]) -> None:
    for run in (0, 1):
        example.leave(example.right, run=run)
    damage(example)
    with pytest.raises(Malformed, match="out0: the pages of the output are"):
        example.judged(ALL)
    with pytest.raises(Malformed, match="out0: the pages of the output are"):
        example.wide(ALL)


def test_an_output_of_no_elements_is_nothing_to_judge(tmp_path: Path, example: Example) -> None:
    (none := tmp_path / "none").mkdir()
    empty = Example(none, shape=(0, 3))
    assert nothing_launched(empty.task) is None
    missing = nothing_launched(example.task)
    assert missing is not None and "out0 is not written" in missing.reason
    assert empty.judged(Ran())[0] is None
    assert empty.wide(Ran())[0] is None


def test_two_runs_of_all_blocks_pass(example: Example) -> None:
    for run in (0, 1):
        example.leave(example.right, run=run)
    failed, checked = example.wide(ALL)
    assert failed is None
    assert checked.facts == {
        "full_size_checked": 4200,
        "full_size_coverage": "all of the elements compared; all of the blocks run, in two orders, "
        "1 of them with all checks",
    }


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("absolute", "compared", "told"),
    [
        ((1e-4, NOT_COMPARED), 2100, "rows of out0 of inputs that are large"),
        ((NOT_COMPARED, NOT_COMPARED), 0, "rows of out0 of inputs that are own, large"),
        (None, 0, "all of out0"),
    ],
)
def test_rows_that_pytorch_itself_does_not_tell_are_not_said_to_be_compared(
    example: Example, absolute: tuple[float, ...] | None, compared: int, told: str, both: bool
) -> None:
    tolerance = absolute and RowTolerance(absolute=absolute, relative=(0.0, 0.0), row=COLUMNS)
    example.case = example.case.model_copy(
        update={"rows": ("own", "large"), "tolerances": (tolerance,)}
    )
    for run in (0, 1):
        example.leave(example.right, run=run)
    failed, checked = example.wide(ALL) if both else example.judged(ALL)
    assert failed is None and checked.elements == compared
    words = f"PyTorch's own answer is too imprecise for {told}"
    assert checked.facts["full_size_unchecked"] == words
    assert words in checked.diagnostics[0].message
    assert (verified_by_sample(checked).outcome is Outcome.PASSED) is (compared > 0)


def test_two_runs_that_disagree_do_not_pass(example: Example) -> None:
    example.leave(example.right)
    left = example.right.copy()
    left[1405:1408] += 3
    left[4199] += 1e-5  # within the tolerance: another order of a sum
    example.leave(left, run=1)
    failed, _ = example.wide(ALL)
    assert failed.outcome is Outcome.NONDETERMINISTIC
    assert failed.reason.endswith("disagree: out0[2, 5], and 2 elements near it")


def test_two_runs_that_are_wrong_alike_do_not_pass(example: Example) -> None:
    left = example.right.copy()
    left[4100] += 3
    for run in (0, 1):
        example.leave(left, run=run)
    failed, _ = example.wide(ALL)
    assert failed.outcome is Outcome.WRONG_ANSWER
    assert failed.reason.endswith("1 of 4200 elements written by the whole grid differ")
    failed, _ = example.wide(HALF)
    assert failed.reason.endswith("1 of 4200 elements that the blocks wrote differ")


@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize("last", [4199, 1000, 0])
def test_what_one_of_two_runs_left_out_is_missing(example: Example, run: int, last: int) -> None:
    example.leave(example.right, run=1 - run)
    example.leave(example.right, slice(last), run)
    failed, _ = example.wide(ALL)
    assert failed.outcome is Outcome.WRONG_ANSWER
    assert f"{4200 - last} of 4200 elements of out0 are not written" in failed.reason


def test_what_all_blocks_would_write_is_asked_of_a_confirmation_too(example: Example) -> None:
    for run in (0, 1):
        example.leave(example.right, FIRST_HALF, run=run)
    assert example.wide(HALF)[0] is None
    failed, _ = example.wide(Ran({OUTPUT: wrote(grid_bytes=0.98 * BYTES)}))
    assert failed.diagnostics[0].kind == NOT_WRITTEN and "98 % of out0" in failed.reason
    rest = fill(offset=BYTES // 2, width=BYTES // 2)
    assert example.wide(rest, Ran({OUTPUT: wrote(grid_bytes=0.5 * BYTES)}))[0] is None


@pytest.mark.parametrize(
    ("share", "left", "passes"),
    [(1.0, 0.0, True), (0.995, 0.0, True), (0.94, 0.0, False), (0.94, 1.0, True)],
    ids=["all", "nearly all", "a part of zeros", "a part of what is right"],
)
def test_what_an_earlier_launch_left_is_no_part_of_the_answer(
    example: Example, share: float, left: float, passes: bool
) -> None:
    """All is filled, then half the blocks of a launch write half of the output."""
    values = example.right * np.float32(left)
    values[FIRST_HALF] = example.right[FIRST_HALF]
    for run in (0, 1):
        example.leave(values, run=run)
        known = bytes([1]) * (BYTES // 2) + bytes([0]) * (BYTES - BYTES // 2)
        (example.folders[run] / "out0.known").write_bytes(known)
    every = Ran({OUTPUT: wrote()}, sampled_blocks=8)
    half = Ran({OUTPUT: wrote(grid_bytes=share * BYTES)})
    failed, _ = example.wide(every, half)
    assert (failed is None) is passes
    assert failed is None or failed.diagnostics[0].kind == NOT_WRITTEN


def test_an_unwritten_right_value_of_the_poison_s_bits_is_missing(tmp_path: Path) -> None:
    example = Example(tmp_path, "int64")
    example.right[::2] = -1
    example.answer(example.right)
    for run in (0, 1):
        example.leave(example.right, run=run)
    failed, checked = example.wide(ALL)
    assert failed is None and checked.elements == 4200 and checked.share == 1
    half = Ran({OUTPUT: wrote(end=example.right.nbytes)})
    assert example.wide(half)[1].elements == 2100
    for run in (0, 1):
        example.leave(example.right, example.right != -1, run=run)
    failed, _ = example.wide(ALL)
    assert "2100 of 4200 elements of out0 are not written" in failed.reason


def test_where_blocks_are_missing_what_hangs_on_them_is_not_compared(example: Example) -> None:
    left = example.right.copy()
    example.leave(left, FIRST_HALF)
    left[1405:1408] += 3
    example.leave(left, FIRST_HALF, run=1)
    # Nothing that it is made of could still change: it hangs on poison or on the order of blocks.
    failed, _ = example.wide(HALF)
    assert failed.outcome is Outcome.NONDETERMINISTIC
    assert "two runs of the same blocks" in failed.reason and "out0[2, 5]" in failed.reason
    path = example.folders[0] / "out0.known"
    known = bytearray(path.read_bytes())
    known[4 * 1405 : 4 * 1408] = bytes(12)
    path.write_bytes(known)
    failed, checked = example.wide(HALF)
    assert failed is None and checked.elements == 2097 and checked.orders == 2
    assert checked.withheld == "3 elements hang on blocks that were not run"


def test_what_is_not_known_to_be_final_is_not_compared(example: Example) -> None:
    left = example.right.copy()
    left[3000] += 3
    for run in (0, 1):
        example.leave(left, run=run)
    path = example.folders[0] / "out0.known"
    known = bytearray(path.read_bytes())
    known[4 * 3000 + 3] = 0
    path.write_bytes(known)
    failed, checked = example.wide(HALF)
    assert failed is None and checked.elements == 4199
    assert checked.withheld == "1 elements hang on blocks that were not run"
    assert example.wide(ALL)[0].outcome is Outcome.WRONG_ANSWER
    np.array([3000 * 4 // 32], np.int64).tofile(example.folders[0] / "out0.atomics")
    failed, checked = example.wide(HALF)
    assert failed is None and checked.elements == 4199, "what is right where blocks join counts"
    path.write_bytes(known[:-1])
    with pytest.raises(Malformed, match="what was followed is not whole"):
        example.wide(HALF)


@pytest.mark.parametrize(("right", "passes"), [(8, True), (6, True), (5, False), (0, False)])
def test_what_atomics_join_is_the_answer_or_the_kernel_is_not_confirmed(
    example: Example, right: int, passes: bool
) -> None:
    left = example.right.copy()
    left[3000 + right : 3008] += 3
    for run in (0, 1):
        example.leave(left, run=run)
    np.array([3000 * 4 // 32], np.int64).tofile(example.folders[0] / "out0.atomics")
    failed, checked = example.wide(HALF)
    assert (failed is None) is passes
    if passes:
        assert checked.elements == 4192 + right
    else:
        assert failed.outcome is Outcome.UNSUPPORTED
        assert f"of 8 elements that some touched {8 - right} are not the answer" in failed.reason


@pytest.mark.parametrize(
    ("wrong", "passes"),
    [([0], True), ([7], True), ([0, 7], True), ([0, 1, 6, 7], False), ([3], False), ([0, 4], False),
     ([1, 7], False)],
)  # fmt: skip
def test_between_elements_that_are_the_answer_all_are_that_atomics_join(
    example: Example, wrong: list[int], passes: bool
) -> None:
    left = example.right.copy()
    left[[3000 + each for each in wrong]] += 3
    for run in (0, 1):
        example.leave(left, run=run)
    np.array([3000 * 4 // 32], np.int64).tofile(example.folders[0] / "out0.atomics")
    assert (example.wide(HALF)[0] is None) is passes


@pytest.mark.parametrize(
    ("left_open", "passes"), [([375], True), ([375, 376], True), ([376, 377], False), ([], False),
                              ([375, 376, 377], False)]
)  # fmt: skip
def test_what_is_known_to_want_more_is_left_out_where_it_is_the_smaller_part(
    example: Example, left_open: list[int], passes: bool
) -> None:
    left = example.right.copy()
    left[3000:3008] += 3
    for run in (0, 1):
        example.leave(left, run=run)
    np.array([375, 376, 377, 378], np.int64).tofile(example.folders[0] / "out0.atomics")
    np.array(left_open, np.int64).tofile(example.folders[0] / "out0.open")
    failed, checked = example.wide(HALF)
    assert (failed is None) is passes
    if passes:
        assert checked.elements == 4192


def test_what_atomics_join_is_right_in_both_runs(example: Example) -> None:
    for run in (0, 1):
        left = example.right.copy()
        left[3000:3008] += 3 * run
        example.leave(left, run=run)
    np.array([3000 * 4 // 32], np.int64).tofile(example.folders[0] / "out0.atomics")
    failed, _ = example.wide(HALF)
    assert failed is not None and failed.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("reads", [True, False])
def test_a_touch_of_what_is_incomplete_makes_up_for_nothing(
    example: Example, reads: bool
) -> None:
    """A fill, a kernel that leaves out half of what is its own, and one that reads a little."""
    values = example.right.copy()
    values[FIRST_HALF.stop :] = 0
    for run in (0, 1):
        example.leave(values, run=run)
        known = bytes([1]) * (BYTES // 2) + bytes([0]) * (BYTES - BYTES // 2)
        (example.folders[run] / "out0.known").write_bytes(known)
    fill = Ran({OUTPUT: wrote()}, sampled_blocks=8)
    whole = Ran({OUTPUT: wrote()})
    touch = Ran({OUTPUT: wrote(0, 4)}, read=[OUTPUT] if reads else [], sampled_blocks=8)
    assert example.wide(fill, whole, touch)[0] is None, "the blocks that did not run may write it"
    half = Ran({OUTPUT: wrote(grid_bytes=BYTES / 2)})
    failed, _ = example.wide(fill, half, touch)
    assert failed is not None and "write only 50 %" in failed.reason


LEFT_IN_WORKSPACE = Ran({WORKSPACE: wrote()})


@pytest.mark.parametrize(
    ("before", "read", "words"),
    [
        ([LEFT_IN_WORKSPACE], BYTES, ""),
        ([Ran({WORKSPACE: wrote(grid_bytes=0.9 * BYTES)})], BYTES, "write only 90 %"),
        ([Ran({WORKSPACE: wrote(grid_bytes=0.9 * BYTES)})], BYTES // 2, ""),
        ([], 64, "write only 0 %"),
        ([transfer(place=WORKSPACE, copy=False)], BYTES, ""),
    ],
)
def test_what_is_read_is_written_by_someone(
    example: Example, before: list[Ran | TransferReport], read: int, words: str
) -> None:
    for run in (0, 1):
        example.leave(example.right, run=run)
    reader = Ran({OUTPUT: wrote()}, read=[WORKSPACE], read_bytes={WORKSPACE: read})
    failed, _ = example.wide(*before, reader)
    assert words in failed.reason if words else failed is None


@pytest.mark.parametrize(
    ("written", "source", "words"),
    [(BYTES, WORKSPACE, ""), (0.9 * BYTES, WORKSPACE, "write only 90 %"), (0, INPUT, "")],
)  # fmt: skip
def test_what_is_copied_is_written_by_someone(
    example: Example, written: float, source: int, words: str
) -> None:
    for run in (0, 1):
        example.leave(example.right, run=run)
    writer = Ran({WORKSPACE: wrote(grid_bytes=written, span=written)})
    failed, _ = example.wide(writer, transfer(source_place=source), Ran({OUTPUT: wrote()}))
    assert words in failed.reason if words else failed is None


def test_where_an_estimate_is_a_guess_it_is_not_known_whether_all_is_written(
    example: Example,
) -> None:
    for run in (0, 1):
        example.leave(example.right, run=run)
    for raised, unproven in ((0.05, ()), (0.5, ("out0",))):
        failed, checked = example.wide(Ran({OUTPUT: wrote(raised=raised * BYTES)}))
        assert failed is None and checked.unproven == unproven
        assert ("full_size_unproven" in checked.facts) is bool(unproven)


@pytest.mark.parametrize("reads", [True, False])
def test_a_launch_that_reads_what_is_incomplete_may_still_write_what_is_right(
    example: Example, reads: bool
) -> None:
    values = example.right.copy()
    values[FIRST_HALF.stop :] += 3
    for run in (0, 1):
        example.leave(values, run=run)
        known = bytes([1]) * (BYTES // 2) + bytes([0]) * (BYTES - BYTES // 2)
        (example.folders[run] / "out0.known").write_bytes(known)
    parts = Ran({WORKSPACE: wrote()})
    sums = Ran({OUTPUT: wrote()}, read=[WORKSPACE] if reads else [], sampled_blocks=8)
    failed, _ = example.wide(parts, sums)
    assert (failed is None) is reads


def test_bytes_of_either_poison_are_compared_where_all_blocks_ran(tmp_path: Path) -> None:
    example = Example(tmp_path, "int8")
    example.case = example.case.model_copy(
        update={"tolerances": (RowTolerance(absolute=(0.0,), relative=(0.0,), row=1),)}
    )
    example.right[:] = np.arange(example.right.size) % 7 - 4
    example.answer(example.right)
    size = example.right.nbytes
    whole = Ran({OUTPUT: wrote(sampled_bytes=size, grid_bytes=size, span=size, end=size)},
                sampled_blocks=8)  # fmt: skip
    for wrong in (None, -1, -2):
        left = example.right.copy()
        if wrong is not None:
            left[np.flatnonzero(left == 1)[:2]] = wrong
        for run in (0, 1):
            example.leave(left, run=run)
        failed, checked = example.wide(whole)
        if wrong is None:
            assert failed is None and checked.elements == example.right.size
        else:
            assert f"expected 1, got {wrong}" in failed.reason
    example.leave(example.right, slice(1, None), run=0)
    example.leave(example.right, slice(1, None), run=1)
    assert "1 of" in example.wide(whole)[0].reason and "not" in example.wide(whole)[0].reason
