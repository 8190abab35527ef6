"""What is not to be proposed is said once a reason, and dozens of operators' names never."""

from __future__ import annotations

from kernelblaster.memory.knowledge.snapshots.edits import OTHER_OPERATORS, Edits
from kernelblaster.nodes.optimization_proposer.prompt import refused_lines
from kernelblaster.tools.techniques.catalogue import knowledge_seed, techniques


def test_techniques_of_one_reason_stand_on_one_line() -> None:
    refused = {
        "wgmma_products": OTHER_OPERATORS, "unroll_loop": "one launch", "fast_math": "lost twice",
        "grid_sync_fusion": "one launch", "split_k": OTHER_OPERATORS,
    }  # fmt: skip
    assert refused_lines(refused) == [
        "- fast_math: lost twice",
        "- grid_sync_fusion, unroll_loop: one launch",
        "- whatever works on operators that this task does not have",
    ]
    assert refused_lines({}) == []


def test_a_norm_is_told_of_no_products_operators() -> None:
    listed = knowledge_seed().optimizations.values()
    cards = {name: card for under in listed for name, card in under.items()}
    facts = {"operators": frozenset({"rms_norm"}), "launches": 1.0}
    withheld = Edits([], 0).withheld(cards, facts, "simulated", {})
    assert withheld["tensor_cores_wmma"] == OTHER_OPERATORS
    assert "launches at least 2 (here 1)" in withheld["grid_sync_fusion"]
    assert len(withheld) > len(techniques()) / 4
    assert len("\n".join(refused_lines(withheld))) < 500
