"""A reviewer reads what changed since a version that it accepted.

Without one, and as the last gate, it reads the whole file.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_role_support import run
from scripted_chat_model import ScriptedChatModel

from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.reviews import CandidateReview
from kernelblaster.nodes.soft_verifier.asking import acceptances
from kernelblaster.tools.first_kernel.writer import InitialKernel
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.wording.difference import difference
from kernelblaster.tools.wording.listing import line_of

ACCEPT = {"verdict": "accept", "objections": [], "summary": "It does what it says."}
BODY = [f"// part {number}" for number in range(40)]
LONG = "\n".join(["us: 100.0", "// launch()", *BODY, ""])


def reviewed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reviews: list[Any], kernels: list[str]
) -> list[str]:
    """Return what the reviewer is asked in a run of as many steps as there are kernels."""
    real = graph_support.install

    def install(patch: Any, rewrites: Any) -> None:
        real(patch, rewrites)
        patch("kernelblaster.nodes.initial_cuda.builtin.write_builtin",
              lambda task: InitialKernel(source=LONG))  # fmt: skip

    monkeypatch.setattr(graph_support, "install", install)
    model = ScriptedChatModel(
        by_role={"soft_verifier": reviews, "kernel_writer": [fenced(each) for each in kernels]}
    )
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    run(folder, monkeypatch, model, "kernel_writer", "soft_verifier", steps=len(kernels),
        repairs=0)  # fmt: skip
    return [call.prompt for call in model.calls_of("soft_verifier")]


def test_what_changed_is_read_against_the_parent_and_all_of_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = LONG.replace("100.0", "50.0").replace("// part 20", "// part twenty")
    grandchild = child.replace("50.0", "30.0")
    first, second, winner = reviewed(tmp_path, monkeypatch, [ACCEPT] * 3, [child, grandchild])
    assert "## The file" in first and "// part 39" in first
    assert "## What changed in the file" in second and "## The file" not in second
    for line in ("-us: 100.0", "+us: 50.0", "-// part 20", "+// part twenty", " // part 21"):
        assert f"\n{line}\n" in second, line
    assert "// part 39" not in second and "// part 10" not in second
    assert "## The file" in winner and "us: 30.0" in winner and "// part 39" in winner


def test_without_a_version_that_was_accepted_the_whole_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's reviewer gave no usable reply."""
    child = LONG.replace("100.0", "50.0")
    grandchild = child.replace("50.0", "30.0")
    _, *unusable, second, winner = reviewed(
        tmp_path, monkeypatch, [*["no JSON"] * 3, ACCEPT, ACCEPT], [child, grandchild]
    )
    assert len(unusable) == 2 and "## The file" in second and "// part 39" in second
    assert "## The file" in winner


def test_a_file_that_is_another_one_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "\n".join(["us: 50.0", "// launch()", *(f"// new {n}" for n in range(40)), ""])
    _, second = reviewed(tmp_path, monkeypatch, [ACCEPT] * 2, [other])
    assert "## The file" in second and "// part" not in second


@pytest.mark.parametrize(
    ("place", "before", "counts"),
    [
        ((0, 0, -1), (0, 1, 0), True),  # The first kernel's: before all steps.
        ((0, 0, 1), (0, 0, 2), True),
        ((0, 0, 1), (0, 1, 2), False),  # A parallel rollout's: it hangs on timing.
        ((0, 0, 1), (1, 1, 0), True),
        ((1, 0, 0), (0, 0, 3), False),  # A run that is gone on with repeats the step.
        ((0, 1, 1), None, True),  # The winner's review: all is over.
    ],
)
def test_an_acceptance_counts_where_it_is_known_whatever_the_timing(
    tmp_path: Path, place: Any, before: Any, counts: bool
) -> None:
    review = CandidateReview(source_sha256="a" * 64, place=place, author="m")
    with RunStore(tmp_path / "run.sqlite") as store:
        store.put_stage("key", f"accepted {place[0]} {place[1]} {place[2]}",
                        review.model_dump_json())  # fmt: skip
        store.put_stage("key", "verify", "{}")
        workspace: Any = SimpleNamespace(store=store)
        found = acceptances(workspace, "key", before, ("accepted", "changes accepted"))
        assert found == ([review] if counts else [])


FILE = "int a;\n__global__ void k(float* x) {\n" + "".join(
    f"    x[{number}] = {number};\n" for number in range(30)
) + "}\n"  # fmt: skip


def test_a_change_is_told_with_its_function_and_where_it_is_now() -> None:
    told = difference(FILE, FILE.replace("x[20] = 20", "x[20] = 2"), around=2)
    assert told.split("\n") == [
        "@@ line 21, in __global__ void k(float* x)",
        "     x[18] = 18;", "     x[19] = 19;", "-    x[20] = 20;", "+    x[20] = 2;",
        "     x[21] = 21;", "     x[22] = 22;",
    ]  # fmt: skip
    assert difference(FILE, FILE) == ""
    assert line_of(FILE, "+    x[20] = 20;") == 23, "a sign that was copied along"


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd")))
def test_every_change_is_told(before: list[str], after: list[str]) -> None:
    told = difference("\n".join(before), "\n".join(after), around=1000).split("\n")
    lines = [line for line in told if line and not line.startswith("@@")]
    if before != after:
        assert [line[1:] for line in lines if line[0] != "+"] == before
        assert [line[1:] for line in lines if line[0] != "-"] == after
