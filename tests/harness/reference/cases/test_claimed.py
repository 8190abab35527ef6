"""A claimed input is built as it is said, within the rules of the task, or refused for a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_support import text_task
from pydantic import ValidationError
from small_references import reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.claimed import (
    claimed_case,
    claimed_instance,
    scale_of_claim,
    write_claimed,
)
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.task.claims import ClaimedInput, NotAnInput, require_claimable
from kernelblaster.harness.task.rules import LARGEST_CLAIMED


def claim(**fields: Any) -> ClaimedInput:
    return ClaimedInput.model_validate({"tensors": [{"tensor": "x", "kind": "own"} | fields]})


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({"kind": "constant", "first": -3.5}, lambda x: (x == -3.5).all()),
        (
            {"kind": "uniform", "first": 2.0, "second": 3.0},
            lambda x: (x >= 2).all() and (x < 3).all() and len(x.unique()) > 2000,
        ),
        (
            {"kind": "normal", "first": 50.0, "second": 2.0},
            lambda x: abs(float(x.mean()) - 50) < 0.2 and abs(float(x.std()) - 2) < 0.1,
        ),
        (
            {"places": [{"index": [3, None], "value": 7.0}, {"index": [0, 1], "value": 9.0}]},
            lambda x: (x[3] == 7).all() and x[0, 1] == 9 and (x == 7).sum() == 40,
        ),
    ],
)
def test_a_claimed_input_holds_what_is_claimed(fields: dict[str, Any], holds: Any) -> None:
    made = reference("x * 2")
    found = claimed_instance(made, explore(made), claim(**fields))
    again = claimed_instance(made, explore(made), claim(**fields))
    assert holds(found.inputs["x"]) and torch.equal(found.inputs["x"], again.inputs["x"])


def test_what_is_not_named_holds_its_own_values() -> None:
    made = reference("x + y", "torch.rand(N, 40) + 5, torch.rand(N, 40) + 9", "x, y")
    found = claimed_instance(made, explore(made), claim(kind="constant", first=1.0))
    assert (found.inputs["y"] >= 9).all() and (found.inputs["x"] == 1).all()


@pytest.mark.parametrize(
    ("body", "inputs", "fields", "why"),
    [
        ("torch.log(x)", "torch.rand(N, 40) + 0.1", {"kind": "normal"}, "no negative values"),
        (
            "torch.log(x - 2.5) + torch.sqrt(4.5 - x)", "torch.rand(N, 40) + 3",
            {"kind": "constant", "first": 9.0}, "stays within",
        ),
        ("torch.log(x)", "torch.rand(N, 40) + 0.1", {"kind": "constant"}, "not finite"),
        ("x * 2", "torch.rand(N, 40)", {"places": [{"index": [900, 0], "value": 1.0}]}, "index"),
        (
            "x[torch.arange(len(x)), i]", "torch.rand(N, 40), torch.randint(40, (N,))",
            {"tensor": "i", "kind": "constant", "first": 60.0}, "stays within 0",
        ),
        ("x * 2", "torch.rand(N, 40)", {"tensor": "z", "kind": "constant"}, "no z"),
    ],
)  # fmt: skip
def test_what_no_case_ever_holds_is_no_input(
    body: str, inputs: str, fields: dict[str, Any], why: str
) -> None:
    made = reference(body, inputs, "x, i" if "i]" in body else "x")
    with pytest.raises(NotAnInput, match=why):
        claimed_case(made, explore(made), claim(**fields))


@pytest.mark.parametrize(
    ("value", "is_flag"), [(-1.0, False), (0.0, True), (1.0, True), (2.0, False)]
)
def test_a_flag_is_zero_or_one(value: float, is_flag: bool) -> None:
    made = reference("torch.where(m, x, 0.0)", "torch.rand(N, 40), torch.rand(N, 40) > 0.5", "x, m")
    asked = claim(tensor="m", kind="constant", first=value)
    if is_flag:
        found = claimed_instance(made, explore(made), asked).inputs["m"]
        assert bool((found == bool(value)).all())
    else:
        with pytest.raises(NotAnInput, match="flags: 0 or 1"):
            claimed_instance(made, explore(made), asked)


def test_the_case_is_written_as_any_other_with_a_tolerance_of_its_own(tmp_path: Path) -> None:
    made = reference("torch.softmax(x, 1)")
    asked = claim(kind="normal", second=40.0)
    write_claimed(made, tmp_path, explore(made), asked)
    (case,) = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert case["name"] == f"claimed-{asked.id}" and case["inputs"].startswith("x: normal")
    assert case["tolerances"][0]["absolute"] > 0 and scale_of_claim(asked) == "up"
    assert (tmp_path / "0" / "out0.bin").stat().st_size == 64 * 40 * 4


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tensor": "out0", "kind": "constant"}, "out0 is none of x"),
        ({"kind": "constant", "first": 2 * LARGEST_CLAIMED}, "at most 1024"),
        ({"kind": "constant", "first": float("nan")}, "finite"),
        ({"kind": "normal", "second": LARGEST_CLAIMED}, "at most"),
        ({"kind": "uniform", "first": 2.0, "second": 1.0}, "empty"),
        ({"places": [{"index": [1024], "value": 0.0}]}, "no place"),
        ({"places": [{"index": [0, 0], "value": 0.0}]}, "no place"),
    ],
)
def test_a_claim_is_bounded_before_anything_is_built(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAnInput, match=why):
        require_claimable(text_task(), claim(**fields))


def test_tensors_that_cannot_be_chosen_are_refused_by_their_level() -> None:
    for level, fields in (
        ("own", {"kind": "constant"}), ("order", {"kind": "constant"}),
        ("positive", {"kind": "constant", "first": -1.0}),
    ):  # fmt: skip
        task = text_task().model_copy(update={"variation": Variation(levels={"x": level})})
        with pytest.raises(NotAnInput):
            require_claimable(task, claim(**fields))
        require_claimable(task, claim())


def test_a_claim_is_small() -> None:
    with pytest.raises(ValidationError):
        claim(places=[{"index": [0], "value": 0.0}] * 17)
    with pytest.raises(ValidationError):
        ClaimedInput(tensors=())
