"""A proposal says which of a program's kernels it changes, and all that follows speaks of that."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import graph_support
import pytest
from every_role import CARD, NEW, good
from model_role_support import Ran, run
from scripted_chat_model import ScriptedChatModel

from kernelblaster.nodes.records.choices import Proposal, TechniqueChoice
from kernelblaster.tools.models.records import Role

SHARES = {"norm_rows": 0.3, "product": 0.7}
WHY = {"technique": NEW, "reason": "It should gain most."}
ROLES: tuple[Role, ...] = ("optimization_proposer", "kernel_writer")
TOGETHER: tuple[Role, ...] = (*ROLES, "state_selector", "optimization_selector")


def proposed(launch: str | None = None, technique: str = NEW) -> dict[str, Any]:
    said: dict[str, Any] = {"technique": technique, "reason": "Its rows are read again."}
    said |= {"new": CARD} if technique == NEW else {}
    return {"proposals": [said | ({} if launch is None else {"launch": launch})]}


@pytest.fixture(autouse=True)
def two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text device's kernels are programs of two."""
    real = graph_support.TextDevice.profile

    async def profile(self: Any, task: Any, source: str, sample: int = 0) -> Any:
        measured = await real(self, task, source, sample)
        (whole,) = measured.profile.launches
        parts = tuple(
            whole.model_copy(
                update={"kernel": name, "microseconds": whole.microseconds * share,
                        "terms": {"dram": whole.microseconds * share}}
            )
            for name, share in SHARES.items()
        )  # fmt: skip
        found = measured.profile.model_copy(update={"launches": parts})
        return measured.model_copy(update={"profile": found})

    monkeypatch.setattr(graph_support.TextDevice, "profile", profile)


def ran_with(
    folder: Path, patch: pytest.MonkeyPatch, *replies: Any, together: bool = False
) -> tuple[Ran, ScriptedChatModel]:
    scripted = [*replies]
    model = ScriptedChatModel(
        by_role={"optimization_proposer": scripted, "kernel_writer": [good("kernel_writer")]}
    )
    roles = TOGETHER if together else ROLES
    agents = "compact" if together else "full"
    return run(folder, patch, model, *roles, steps=1, agents=agents), model


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("launch", ["norm_rows", "product"])
def test_what_a_proposal_names_is_written_forecast_and_filed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: str, together: bool
) -> None:
    reply = proposed(launch)
    if together:
        reply |= {"choice": WHY, "state": {"state": "new", "name": "rows", "description": "Rows.",
                                           "reason": "None fits."}}  # fmt: skip
    ran, model = ran_with(tmp_path, monkeypatch, reply, together=together)
    prompt = model.calls_of("optimization_proposer")[0].prompt
    assert "`launch` says which kernel each changes: product, norm_rows." in prompt
    assert f"It is meant for the kernel {launch}." in model.calls_of("kernel_writer")[0].prompt
    (row,) = ran.evidence
    assert (row.technique, row.launch, row.launch_share) == (
        NEW, launch, pytest.approx(SHARES[launch])
    )
    assert ran.steps[0].launch == ran.told("step")[0]["launch"] == launch
    most = -math.log1p(-SHARES[launch])  # Amdahl: all that its share of the time allows.
    assert row.expected_log_gain <= most


def test_what_to_expect_follows_from_the_kernel_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    monkeypatch.setitem(SHARES, "norm_rows", 0.05)
    monkeypatch.setitem(SHARES, "product", 0.95)
    for launch in SHARES:
        (tmp_path / launch).mkdir()
        ran, _ = ran_with(tmp_path / launch, monkeypatch, proposed(launch))
        found[launch] = ran.evidence[0].expected_log_gain
    assert 0 < found["norm_rows"] <= -math.log1p(-0.05) < found["product"]


def test_a_kernel_that_there_is_not_is_asked_for_again_with_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another proposal could be taken: its evidence would be filed on a guess."""
    wrong = proposed("reduce_rows")
    wrong["proposals"] += proposed("product", "online_softmax")["proposals"]
    ran, model = ran_with(tmp_path, monkeypatch, wrong, proposed("void norm_rows<4>(float*)"))
    again = str(model.calls_of("optimization_proposer")[1].messages[-1].content)
    assert "no kernel called reduce_rows" in again and "product, norm_rows" in again
    assert ran.evidence[0].launch == "norm_rows", "as a compiler names it"


def test_of_a_program_of_one_kernel_no_name_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SHARES, "norm_rows")
    monkeypatch.setitem(SHARES, "product", 1.0)
    ran, model = ran_with(tmp_path, monkeypatch, proposed("the matrix product"))
    assert len(model.calls_of("optimization_proposer")) == 1
    assert ran.evidence[0].launch == "product" and ran.told("step")[0]["launch"] == ""


def test_a_proposal_that_names_none_is_aimed_where_it_promises_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, _ = ran_with(tmp_path, monkeypatch, proposed())
    assert ran.evidence[0].launch == "product"


def test_a_built_in_rewrite_changes_what_it_changes_whoever_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([proposed("norm_rows", "fast_math")])
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1)
    assert (ran.steps[0].author, ran.steps[0].launch) == ("builtin", "product")


def test_a_choice_is_for_the_kernel_of_its_proposal_and_older_ones_are_read() -> None:
    expected = {"mean_log": 0.1, "std_log": 0.1, "success_probability": 0.9, "passed": 9,
                "failed": 1, "trials": 0, "score": 0.1}  # fmt: skip
    older = Proposal.model_validate({"technique": NEW, "source": "model", "expected": expected})
    assert older.launch == ""
    named = older.model_copy(update={"launch": "product"})
    chosen = TechniqueChoice.of(named, sampled_score=0.1, reason="It is.", author="builtin")
    assert chosen.launch == "product"


def test_the_path_says_which_kernel_each_technique_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [proposed("product"), proposed("norm_rows", "online_softmax")]
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [*replies],
                 "kernel_writer": [good("kernel_writer")] * 2}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, *ROLES, steps=2)
    assert [step.launch for step in ran.result.path] == ["product", "norm_rows"]
    report = (tmp_path / "run" / "report.txt").read_text()
    assert f"1. {NEW} of product" in report and "2. online_softmax of norm_rows" in report


@pytest.mark.parametrize(("can", "changed"), [(True, "norm_rows"), (False, "product")])
def test_a_built_in_rewrite_changes_the_kernel_that_a_model_names_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool, changed: str
) -> None:
    changes = "kernelblaster.nodes.optimization_proposer.node._changes"
    monkeypatch.setattr(changes, lambda *_: can)
    reply = proposed("norm_rows", "vectorize_memory_access")
    model = ScriptedChatModel(by_role={"optimization_proposer": [reply]})
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1)
    assert [row.launch for row in ran.evidence] == [changed]
