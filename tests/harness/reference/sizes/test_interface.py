"""Where a model's caller finds what `launch` takes and gives, as PyTorch tells it."""

from __future__ import annotations

import exported_winner
import pytest

from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.reference.sizes.interface import interface_of
from kernelblaster.harness.reference.sizes.variant import Variant
from kernelblaster.harness.task.interface import TaskInterface


@pytest.mark.parametrize("faked", [True, False])
def test_nested_arguments_and_answers_keep_their_form(faked: bool) -> None:
    full = Variant(exported_winner.REFERENCE, "pair.py", {}, AS_WRITTEN, faked)
    told = TaskInterface.model_validate(interface_of(full))
    names = {"layers_0_weight": "layers.0.weight", "layers_0_bias": "layers.0.bias"}
    wanted = exported_winner.INTERFACE.model_copy(
        update={"qualified": names | {"shift": "shift"}}
    )
    assert told == wanted
