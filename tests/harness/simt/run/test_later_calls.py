"""What a device's variables hold after many calls, by what the first three left."""

from __future__ import annotations

import numpy as np

from kernelblaster.harness.simt.run.later_calls import (
    CALLS,
    NO_NUMBER,
    Words,
    set_before,
    set_forward,
)


def whole(*numbers: int) -> list[Words]:
    return [np.array(numbers, np.uint32)]


def floats(*numbers: float) -> list[Words]:
    return [np.array(numbers, np.float32).view(np.uint32)]


def test_a_counter_stands_just_before_a_number_that_much_divides() -> None:
    ahead = set_forward([whole(1, 7), whole(2, 7), whole(3, 7)])
    assert ahead is not None and ahead[0].tolist() == [CALLS[0] - 1, 7]
    assert all(CALLS[0] % each == 0 for each in (2, 3, 5, 7, 50, 64, 100, 1000))


def test_a_counter_of_fractions_goes_on_by_its_fractions() -> None:
    ahead = set_forward([floats(1.25), floats(1.5), floats(1.75)])
    assert ahead is not None
    assert ahead[0].view(np.float32).tolist() == [1.0 + (CALLS[0] - 1) / 4]


def test_a_counter_of_large_steps_goes_as_far_as_it_has_room() -> None:
    step = 1 << 20
    ahead = set_forward([whole(step), whole(2 * step), whole(3 * step)])
    assert ahead is not None and ahead[0].tolist() == [(CALLS[-1] - 1) * step]


def test_a_counter_comes_to_a_number_that_the_code_names() -> None:
    ahead = set_before([whole(1, 7, 8), whole(2, 7, 16), whole(3, 7, 24)], 4999)
    assert ahead is not None and ahead[0].tolist() == [4998, 7, 4984]
    assert set_before([whole(7), whole(7), whole(7)], 4999) is None
    assert set_before([whole(32), whole(16), whole(8)], 4999) == whole(4999)
    assert set_before([whole(100), whole(200), whole(300)], 70) == whole(300)


def test_what_goes_on_by_no_even_steps_is_no_number() -> None:
    ahead = set_forward([whole(3, 1), whole(17, 1), whole(19, 1)])
    assert ahead is not None and ahead[0].tolist() == [NO_NUMBER, 1]


def test_what_stands_still_or_takes_turns_is_left() -> None:
    assert set_forward([whole(5), whole(5), whole(5)]) is None
    assert set_forward([whole(0, 5), whole(1, 5), whole(0, 5)]) is None
    assert set_forward([[], [], []]) is None
