"""Compact agents of one model: one call decides on a step, one looks back on an iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from every_role import good
from graph_support import TextRewrite
from model_role_support import new_folder, run
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.nodes.common.ties import DECIDING, REFLECTING
from kernelblaster.tools.models.records import Role

STATES: tuple[Role, ...] = ("state_extractor", "state_selector")
THREE = tuple(TextRewrite(name, 0.9) for name in ("fast_math", "unroll_loop", "split_k"))


def decision(*techniques: str, choice: str, state: Any = None) -> dict[str, Any]:
    return {
        "proposals": [{"technique": name, "reason": "It acts.", "new": None}
                      for name in techniques],
        "choice": {"technique": choice, "reason": "It gains most."}, "state": state,
    }  # fmt: skip


def test_one_call_a_step_proposes_and_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [
            decision("unroll_loop", "fast_math", choice="fast_math"),
            decision("split_k", choice="unroll_loop"),
        ]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, *DECIDING, rewrites=THREE, agents="compact")
    assert [step.technique for step in ran.steps] == ["fast_math", "unroll_loop"]
    assert [each["techniques"] for each in ran.told("proposals")] == [
        ["unroll_loop", "fast_math"], ["split_k", "unroll_loop"],
    ]  # fmt: skip
    assert {each["author"] for each in ran.told("choice")} == {CURRENT}
    first, second = model.calls
    assert "one of your proposals. This trajectory" in first.prompt
    assert "one of your proposals or of unroll_loop." in second.prompt, "it is on the table still"


def test_what_the_rule_leaves_open_of_the_state_is_asked_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelblaster.nodes.common.ties.tied", lambda near: [])
    new = {"state": "new", "name": "waits for rows", "description": "Rows come late.",
           "reason": "None fits."}  # fmt: skip
    missing = decision("fast_math", choice="fast_math")
    said = [missing, decision("fast_math", choice="fast_math", state=new)]
    model = ScriptedChatModel(by_role={"optimization_proposer": said})
    ran = run(tmp_path, monkeypatch, model, *DECIDING, *STATES, agents="compact", steps=1)
    assert "`state` is asked for" in model.calls[1].prompt
    (told,) = ran.told("state_choice")
    assert (told["state"], told["author"]) == ("waits for rows", CURRENT)
    assert "## The states that it may be in\n- " in model.calls[0].prompt


def test_of_a_kernel_that_a_step_returns_to_the_state_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lose, so that it is the same kernel at each step, near no state that is known."""
    monkeypatch.setattr("kernelblaster.nodes.common.ties.tied", lambda near: [])
    new = {"state": "new", "name": "waits for rows", "description": "Rows come late.",
           "reason": "None fits."}  # fmt: skip
    said = [decision("fast_math", choice="fast_math", state=new),
            decision("split_k", choice="split_k")]  # fmt: skip
    losing = tuple(TextRewrite(name, 3.0) for name in ("fast_math", "split_k"))
    model = ScriptedChatModel(by_role={"optimization_proposer": said})
    ran = run(tmp_path, monkeypatch, model, *DECIDING, *STATES, agents="compact", steps=2,
              rewrites=losing)  # fmt: skip
    first, second = model.calls
    assert "## The states that it may be in" in first.prompt
    assert "## The states that it may be in" not in second.prompt
    assert [each["state"] for each in ran.told("state_choice")] == ["waits for rows"] * 2
    assert [each["discovered"] for each in ran.told("state_choice")] == [True, False]


def test_one_call_looks_back_on_an_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes of it is what three calls that say the same come to."""
    lessons = {}
    for agents in ("compact", "full"):
        by_role = {role: [good(role)] for role in REFLECTING}
        if agents == "compact":
            by_role = {"parameter_update": [good("parameter_update")]}
        model = ScriptedChatModel(by_role=by_role)
        ran = run(new_folder(tmp_path, agents), monkeypatch, model, *REFLECTING, agents=agents)
        assert len(model.calls) == len(by_role)
        authors = [ran.told(name)[0]["author"] for name in REFLECTING]
        assert authors == [CURRENT] * 3
        lessons[agents] = sorted((each.text, each.author) for each in ran.lessons)
    assert lessons["compact"] == lessons["full"]


@pytest.mark.parametrize("roles", [DECIDING, REFLECTING])
def test_without_a_usable_reply_the_built_in_agents_stand_in_and_nobody_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roles: tuple[Role, ...]
) -> None:
    model = ScriptedChatModel(otherwise="nothing")
    ran = run(tmp_path, monkeypatch, model, *roles, agents="compact", steps=1)
    assert len(model.calls) == 3, "asked, and asked again twice"
    authors = [ran.told(name)[0]["author"] for name in ("choice", *REFLECTING)]
    assert all(author.startswith("builtin") for author in authors)
    assert sum("failed: " in author for author in authors) == (1 if roles == DECIDING else 3)
