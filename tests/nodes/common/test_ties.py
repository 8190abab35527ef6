"""A model is asked once about a kernel, and about states that are as near as each other."""

from __future__ import annotations

from typing import Any

import pytest

from kernelblaster.memory.knowledge.states.matching import Near
from kernelblaster.nodes.common.ties import answered_before
from kernelblaster.nodes.records.observations import StateChoice
from kernelblaster.tools.techniques.catalogue import knowledge_seed

STATES = {state.id: state for state in knowledge_seed().states}


def choice(name: str, **told: Any) -> StateChoice:
    return StateChoice(
        state=STATES[name], distance=0.25, discovered=False, reason="As read.", author="a model",
        **told,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "signature", "known"),
    [
        (None, (0.1, 0.2), False),
        (choice("l2_bound", asked_of=(0.1, 0.2)), (0.1, 0.2), True),
        (choice("l2_bound", asked_of=(0.1, 0.3)), (0.1, 0.2), False),
        (choice("l2_bound"), (), False),  # Nobody was asked.
    ],
)
def test_of_the_kernel_that_was_asked_about_nobody_is_asked_again(
    before: StateChoice | None, signature: tuple[float, ...], known: bool
) -> None:
    none_near: list[Near] = []
    found = answered_before(none_near, before, signature)
    assert found == ((STATES["l2_bound"], 0.25) if known else None)
