"""State extractor and state selector by a model: replies of every kind, and what comes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from every_role import good
from graph_support import TextRewrite
from hypothesis import HealthCheck, given, settings
from model_role_support import BAD, jsonish, run
from often_or_seldom import every
from pydantic import ValidationError
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states import matching
from kernelblaster.nodes.records.observations import Observation
from kernelblaster.nodes.state_extractor.builtin import describe_state
from kernelblaster.nodes.state_extractor.prompt import second_resource, unusual
from kernelblaster.nodes.state_extractor.reply import plausible, reading_of
from kernelblaster.nodes.state_selector.builtin import near
from kernelblaster.nodes.state_selector.prompt import candidates
from kernelblaster.nodes.state_selector.reply import match_among
from kernelblaster.tools.techniques.catalogue import knowledge_seed

READING = {
    "primary": "dram", "secondary": "latency",
    "description": "k reads each row twice (line 1).", "features": ["DRAM 100 %"],
}  # fmt: skip
NEW = {
    "state": "new", "name": "rows read twice", "description": "A row makes two passes.",
    "reason": "None of these says it.",
}  # fmt: skip


def known(state: str) -> dict[str, str]:
    return {"state": state, "name": "", "description": "", "reason": "It is the same cause."}


# State extractor -------------------------------------------------------------------------------


def test_a_reading_becomes_the_observation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([READING], otherwise=good("state_extractor"))
    ran = run(tmp_path, monkeypatch, model, "state_extractor")
    first = ran.told("state")[0]
    assert first["description"] == READING["description"] and first["author"] == CURRENT
    assert [call.place for call in model.calls] == [(0, 0, 0), (0, 0, 1)]
    prompt = model.calls[0].prompt
    for needed in ("1 us: 100.0", "dram first", "lsu", "DRAM", "launch() takes 100 us"):
        assert needed in prompt, needed


def test_the_signature_stays_the_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(otherwise=READING | {"primary": "latency", "secondary": None})
    ran = run(tmp_path, monkeypatch, model, "state_extractor", steps=1)
    plain = tmp_path / "plain"
    plain.mkdir()
    other = run(plain, monkeypatch, ScriptedChatModel(), steps=1)
    assert ran.evidence[0].signature_before == other.evidence[0].signature_before
    chosen = next(each for each in ran.states if each.id == ran.steps[0].state_id)
    assert "latency" in (chosen.primary, chosen.secondary), "the model's word led to the state"


@pytest.mark.parametrize("replies", every(6, BAD))
def test_without_a_reading_the_rule_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(replies), "state_extractor", steps=1)
    (told,) = ran.told("state")
    assert told["author"].startswith(f"builtin ({CURRENT} failed: ")
    assert told["bottleneck"] == "dram" and ran.result.best_us == 50.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"primary": "tensor"}, "shows no work of tensor"),
        ({"secondary": "atomic"}, "shows no work of atomic"),
        ({"secondary": "dram"}, "same resource"),
        ({"primary": "pcie"}, "primary"),
        ({"features": []}, "features"),
        ({"description": " \n"}, "description"),
    ],
)
def test_a_reading_that_the_profile_contradicts_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], reason: str
) -> None:
    model = ScriptedChatModel([READING | changes, READING])
    ran = run(tmp_path, monkeypatch, model, "state_extractor", steps=1)
    assert reason in str(model.calls[1].messages[-1].content)
    assert ran.told("state")[0]["author"] == CURRENT


def test_prose_around_the_json_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"I looked at {{}}.\n```json\n{json.dumps(READING)}\n```\nThat is all."
    model = ScriptedChatModel([said])
    assert run(tmp_path, monkeypatch, model, "state_extractor", steps=1).told("state")[0][
        "description"
    ] == READING["description"]


def test_the_second_resource_must_come_near_and_nothing_is_told_twice() -> None:
    def told(terms: dict[str, float]) -> tuple[str | None, list[str]]:
        profile = Profile(
            launches=(LaunchProfile(
                kernel="k", grid=(1, 1, 1), block=(1, 1, 1), microseconds=1.0, terms=terms,
                metrics={"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 95.0,
                         "ptxas__spill_store_bytes": 400.0},
                bottleneck="dram"),),
            gpu="H100", provenance=Provenance.SIMULATED,
        )  # fmt: skip
        rule = describe_state(profile)
        return second_resource(profile, rule), unusual(rule)

    second, figures = told({"dram": 1.0, "l2": 0.4})
    assert second is None and figures == ["50% of the memory traffic is spills"]
    assert told({"dram": 1.0, "l2": 0.6})[0] == "l2"


def test_words_become_one_line_without_control_characters() -> None:
    profile = Profile(
        launches=(LaunchProfile(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), microseconds=1.0,
                                metrics={}, terms={"dram": 1.0}, bottleneck="dram"),),
        gpu="H100", provenance=Provenance.SIMULATED,
    )  # fmt: skip
    long = "word " * 400
    said = READING | {"description": "a\nb\x1b[31m\x00 c", "features": [long], "secondary": None}
    reading = reading_of(profile).model_validate(said)
    assert reading.description == "a b [31m c"
    assert len(reading.features[0]) <= 800 and reading.features[0].endswith(" ...")


def test_a_real_profile_without_terms_admits_all_but_unused_tensor_cores() -> None:
    launch = LaunchProfile(
        kernel="k", grid=(1, 1, 1), block=(32, 1, 1), microseconds=1.0,
        metrics={"sm__inst_executed_pipe_tensor.sum": 0.0}, bottleneck="dram",
    )  # fmt: skip
    profile = Profile(launches=(launch,), gpu="H100", provenance=Provenance.NCU)
    assert "tensor" not in plausible(profile) and "lsu" in plausible(profile)
    share = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 0.7}
    noise = launch.model_copy(update={"metrics": share})
    assert "tensor" not in plausible(profile.model_copy(update={"launches": (noise,)}))
    busy = launch.model_copy(update={"metrics": {"sm__inst_executed_pipe_tensor.sum": 8.0}})
    assert "tensor" in plausible(profile.model_copy(update={"launches": (busy,)}))
    assert {"atomic", "shared_memory"} <= set(plausible(profile)), "nothing was counted of them"
    none = {"x_op_red.sum": 0.0, "x_op_atom.sum": 0.0, "x_mem_shared.sum": 0.0, "y_mem_shared": 3.0}
    counted = profile.dominant.model_copy(update={"metrics": none})
    found = plausible(profile.model_copy(update={"launches": (counted,)}))
    assert "atomic" not in found and "shared_memory" in found
    with pytest.raises(ValidationError, match="shows no work of tensor"):
        reading_of(profile).model_validate(READING | {"primary": "tensor"})


# State selector --------------------------------------------------------------------------------


def test_a_known_state_is_chosen_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(otherwise=known("dram_bandwidth_bound"))
    ran = run(tmp_path, monkeypatch, model, "state_selector")
    assert {step.state_id for step in ran.steps} == {"dram_bandwidth_bound"}
    assert {told["author"] for told in ran.told("state_choice")} == {CURRENT}
    assert "- dram_bandwidth_bound: at the DRAM's bandwidth" in model.calls[0].prompt
    assert "held back by dram" in model.calls[0].prompt.lower()


def test_a_new_state_has_the_models_name_and_the_profiles_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=NEW)
    ran = run(tmp_path, monkeypatch, model, "state_selector", steps=1)
    (found,) = [state for state in ran.states if state.origin == "discovered"]
    assert (found.name, found.description) == (NEW["name"], NEW["description"])
    assert found.primary == "dram" and found.id.startswith("found_dram")
    assert ran.steps[0].state_id == found.id


def test_a_state_once_named_is_known_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = str(tmp_path / "shared")
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    run(one, monkeypatch, ScriptedChatModel(otherwise=NEW), "state_selector", steps=1,
        knowledge=knowledge)  # fmt: skip
    model = ScriptedChatModel([NEW], otherwise=good("state_selector"))
    run(two, monkeypatch, model, "state_selector", steps=1, knowledge=knowledge)
    assert f": {NEW['name']} (dram" in model.calls[0].prompt
    assert "is called rows read twice already" in model.calls[1].prompt


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (known("no_such_state"), "none of the states listed"),
        (known("fp64_bound"), "none of the states listed"),
        (NEW | {"name": ""}, "needs a name"),
        (NEW | {"description": "\x00"}, "needs a name and a description"),
        (NEW | {"name": "at the DRAM's bandwidth"}, "already"),
        (NEW | {"name": "n" * 90}, "name"),
        (known("new"), "needs a name"),
    ],
)
def test_a_state_that_cannot_be_is_asked_for_again_with_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: dict[str, str], reason: str
) -> None:
    model = ScriptedChatModel([reply, known("dram_bandwidth_bound")])
    ran = run(tmp_path, monkeypatch, model, "state_selector", steps=1)
    assert reason in str(model.calls[1].messages[-1].content)
    assert ran.steps[0].state_id == "dram_bandwidth_bound"


@pytest.mark.parametrize("replies", every(6, BAD))
def test_without_a_match_the_distance_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(replies), "state_selector", steps=1)
    plain = tmp_path / "plain"
    plain.mkdir()
    other = run(plain, monkeypatch, ScriptedChatModel(), steps=1)
    assert ran.steps[0].state_id == other.steps[0].state_id
    assert ran.told("state_choice")[0]["author"].startswith(f"builtin ({CURRENT} failed: ")


def test_the_nearest_states_are_shown_and_those_whose_words_fit(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        seen = knowledge.states()[0]
        observation = Observation(
            signature=seen.centroid, signature_name="signature/v2", primary="atomic",
            description="k: many shared memory bank conflicts", author="builtin",
        )  # fmt: skip
        at = knowledge.sequence()
        shown = candidates(knowledge, observation, near(knowledge, observation, at), at, "cuda")
    assert shown[0].state == seen, "whatever holds it back by name"
    assert "shared_bank_conflicts" in [each.state.id for each in shown if not each.weight]
    with pytest.raises(ValidationError, match=f"{seen.id}, new"):
        match_among([seen], frozenset()).model_validate(known("l2_bound"))


def _apart(monkeypatch: pytest.MonkeyPatch, bandwidth: float) -> None:
    """Have the text device's one counter tell of states, told apart at a distance."""
    monkeypatch.setattr(matching, "COMPARED", 0.0)
    monkeypatch.setattr(matching, "BANDWIDTH", bandwidth)


def test_where_the_rule_is_clear_no_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _apart(monkeypatch, 0.001)
    model = ScriptedChatModel(otherwise="nothing")
    ran = run(tmp_path, monkeypatch, model, "state_extractor", "state_selector", steps=1,
              agents="compact")  # fmt: skip
    assert not model.calls and ran.told("state")[0]["author"] == "builtin"
    assert ran.told("state_choice")[0]["author"] == "builtin"


def test_where_two_states_fit_the_model_is_asked_with_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "rows_read_repeatedly"
    _apart(monkeypatch, 1.0)
    model = ScriptedChatModel([known(other)])
    same = tuple(TextRewrite(name, 0.99) for name in ("fast_math", "unroll_loop", "split_k"))
    ran = run(tmp_path, monkeypatch, model, "state_extractor", "state_selector", steps=3,
              agents="compact", rewrites=same)  # fmt: skip
    (choosing,) = (call.prompt for call in model.calls)
    assert f"- {other}: " in choosing and "- atomic_contention: " not in choosing
    assert "weight 0%" not in choosing
    assert [step.state_id for step in ran.steps] == [other] * 3
    assert [each["author"] for each in ran.told("state_choice")] == [CURRENT] * 3


def test_among_other_states_the_model_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what it chose before is among them: another comes as near now."""
    _apart(monkeypatch, 1.0)
    model = ScriptedChatModel(otherwise=known("rows_read_repeatedly"))
    far = (TextRewrite("fast_math", 0.5), TextRewrite("unroll_loop", 0.99))
    run(tmp_path, monkeypatch, model, "state_selector", steps=2, agents="compact",
        rewrites=far)  # fmt: skip
    first, second = (set(re.findall(r"^- (\w+): ", call.prompt, re.M)) for call in model.calls)
    assert first != second


def test_a_model_that_alone_reads_is_asked_where_two_states_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _apart(monkeypatch, 1.0)
    model = ScriptedChatModel([READING])
    run(tmp_path, monkeypatch, model, "state_extractor", steps=1, agents="compact")
    assert "it may be in any of these situations" in model.calls[0].prompt


# Any reply -------------------------------------------------------------------------------------

FIELDS = ["primary", "secondary", "description", "features", "state", "name", "reason"]
WORDS = ["dram", "latency", "tensor", "new", "dram_bandwidth_bound", "", "x"]


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(replies=jsonish(FIELDS, WORDS).flatmap(lambda one: jsonish(FIELDS, WORDS).map(
    lambda other: [one, other, one, other])))  # fmt: skip
def test_no_reply_ends_the_run_or_loses_the_best(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("replies")
    model = ScriptedChatModel(replies, otherwise="nothing more")
    ran = run(folder, monkeypatch, model, "state_extractor", "state_selector", steps=1)
    assert ran.result.best_us == min(
        [100.0, *(step.microseconds_after for step in ran.steps if step.microseconds_after)]
    )
