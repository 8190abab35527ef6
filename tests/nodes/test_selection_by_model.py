"""Optimization proposer and selector by a model: replies of every kind, and what comes of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import graph_support
import pytest
from every_role import CARD, NEW, good
from graph_support import INITIAL, TextRewrite
from hypothesis import HealthCheck, given, settings
from model_role_support import BAD, jsonish, new_folder, run
from often_or_seldom import every
from pydantic import ValidationError
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.nodes.common.outlook.untried import MOST_EXPECTED
from kernelblaster.nodes.optimization_proposer.prompt import new_optimization
from kernelblaster.nodes.optimization_proposer.reply import Proposals, ProposedTechnique
from kernelblaster.nodes.optimization_proposer.table import forbidden
from kernelblaster.nodes.optimization_selector.reply import Selection
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.techniques.catalogue import knowledge_seed

CHOICE = {"technique": "fast_math", "reason": "exp is slow."}


def chosen(technique: str) -> dict[str, Any]:
    return CHOICE | {"technique": technique}


def proposal(technique: str, **changes: Any) -> dict[str, Any]:
    return {"technique": technique, "reason": f"{technique} acts on line 1.", "new": None} | changes


def proposals(*techniques: str | dict[str, Any]) -> dict[str, Any]:
    return {
        "proposals": [
            each if isinstance(each, dict) else proposal(each) for each in techniques
        ]
    }  # fmt: skip


# Optimization proposer -------------------------------------------------------------------------


def test_proposals_are_what_is_chosen_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(otherwise=proposals("fast_math"))
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1)
    assert [step.technique for step in ran.steps] == ["fast_math"]
    (told,) = ran.told("proposals")
    assert (told["techniques"], told["author"]) == (["fast_math"], CURRENT)
    prompt = model.calls[0].prompt
    for needed in ("1 us: 100.0", "- fast_math: ", "expected 1", "nothing kept from one call",
                   "never tried", "Its state: ", "only those can be written here"):  # fmt: skip
        assert needed in prompt, needed
    assert "- split_k:" not in prompt, "nothing here could write it"


def test_a_model_that_lowers_may_write_any_technique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals("online_softmax")],
                 "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    assert [step.technique for step in ran.steps] == ["online_softmax"]
    prompt = model.calls_of("optimization_proposer")[0].prompt
    assert "software_prefetch" in prompt and "a new name" in prompt


def test_a_new_technique_is_lowered_from_its_card_and_is_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals(proposal(NEW, new=CARD))],
                 "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    (lowering,) = model.calls_of("kernel_writer")
    for needed in (CARD["description"], CARD["applies_when"], CARD["notes"], 'with {"rows": 4}',
                   "expected 1.11x, a guess"):  # fmt: skip
        assert str(needed) in lowering.prompt, needed
    (row,) = ran.evidence
    assert row.technique == NEW and row.log_gain == pytest.approx(-math.log(0.7))
    assert row.expected_log_gain == pytest.approx(0.5 * 0.5 * math.log(1.5))
    (step,) = ran.steps
    assert step.optimization is not None and step.optimization.notes == CARD["notes"]
    (table,) = [under for under in ran.listed.values() if NEW in under]
    assert table[NEW].description == CARD["description"]
    assert table[NEW].prior_log_gain == pytest.approx(0.5 * -math.log(0.7)), "from evidence"
    assert any(lesson.technique == NEW for lesson in ran.lessons)


def test_a_field_too_many_costs_no_second_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = proposals(proposal("fast_math", lines=[1, 2]))
    model = ScriptedChatModel([reply | {"thoughts": "It is exp."}])
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1)
    assert len(model.calls) == 1 and ran.told("proposals")[0]["author"] == CURRENT


def test_a_later_run_knows_a_technique_that_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = str(tmp_path / "kb")
    for name, reply in (("one", proposals(proposal(NEW, new=CARD))), ("two", proposals(NEW))):
        model = ScriptedChatModel(
            by_role={"optimization_proposer": [reply], "kernel_writer": [good("kernel_writer")]}
        )
        ran = run(new_folder(tmp_path, name), monkeypatch, model, "optimization_proposer",
                  "kernel_writer", steps=1, knowledge=knowledge, start=INITIAL)  # fmt: skip
    assert f"- {NEW}: {CARD['description']}" in model.calls_of("optimization_proposer")[0].prompt
    assert CARD["notes"] in model.calls_of("kernel_writer")[0].prompt
    assert len(ran.evidence) == 2 and ran.steps[-1].technique == NEW


def test_a_new_technique_without_gain_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals(proposal(NEW, new=CARD))],
                 "kernel_writer": ["NOT APPLICABLE: no rows."]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    assert [row.outcome for row in ran.evidence] == ["not_applicable"]
    assert not any(NEW in under for under in ran.listed.values())


def test_what_was_tried_on_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse = [proposals("fast_math"), proposals("fast_math"), proposals("vectorize_memory_access")]


    rewrites = (TextRewrite("fast_math", 2.0), TextRewrite("vectorize_memory_access", 0.5))
    model = ScriptedChatModel(worse)
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", rewrites=rewrites)
    assert [step.technique for step in ran.steps] == ["fast_math", "vectorize_memory_access"]
    second, third = model.calls[1:]
    assert "- fast_math: 0.5x (slower)" in second.prompt
    assert "- fast_math: tried on this file" in second.prompt
    assert "none of these can be tried: fast_math: tried" in str(third.messages[-1].content)


def test_proposer_and_writer_are_told_what_moved_in_attempts_that_lost_and_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a try on the file its profile against the file's; of the file what made it."""
    advised = {"us: 300.0": "Uncoalesced loads waste half of each sector."}
    real = graph_support.TextDevice.profile

    async def profile(self: Any, task: Any, source: str, sample: int = 0) -> Any:
        measured = await real(self, task, source, sample)
        (launch,) = measured.profile.launches
        told = tuple(words for part, words in advised.items() if part in source)
        launch = launch.model_copy(update={"advice": told})
        found = measured.profile.model_copy(update={"launches": (launch,)})
        return measured.model_copy(update={"profile": found})

    monkeypatch.setattr(graph_support.TextDevice, "profile", profile)
    names = ("fast_math", "vectorize_memory_access", "unroll_loop")
    model = ScriptedChatModel(
        by_role={
            "optimization_proposer": [proposals(name) for name in names],
            "kernel_writer": [fenced(f"us: {us}.0\n// launch()\n") for us in (300, 40, 35)],
        }
    )
    run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=3)
    lost = "fast_math: 0.333x (slower) (100 us -> 300 us, dram alone 100 us -> 300 us"
    for role in ("optimization_proposer", "kernel_writer"):
        first, second, third = (call.prompt for call in model.calls_of(role))
        assert lost not in first and lost in second
        assert "advice: Uncoalesced loads waste half of each sector." in second
        assert "What vectorize_memory_access moved: 100 us -> 40 us" in third


def test_a_deprecated_technique_is_refused_with_the_lesson(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = tmp_path / "kb"
    plain = run(new_folder(tmp_path, "plain"), monkeypatch, ScriptedChatModel(), steps=1)
    where = plain.steps[0].state_id
    lesson = Lesson(
        text="fast_math broke three kernels.", kind="deprecation", technique="fast_math",
        state=where, op_class="elementwise", device_kind="simulated", author="person", run="r",
        iteration=0,
    )  # fmt: skip
    with KnowledgeBase.open(knowledge, knowledge_seed()) as opened:
        opened.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=(lesson,)))
    model = ScriptedChatModel(
        [proposals("fast_math"), proposals("fast_math", "vectorize_memory_access")]
    )
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1,
              knowledge=str(knowledge))  # fmt: skip
    assert "- fast_math: fast_math broke three kernels." in model.calls[0].prompt
    assert "broke three kernels" in str(model.calls[1].messages[-1].content)
    (told,) = ran.told("proposals")
    assert told["techniques"] == ["vectorize_memory_access"]
    assert told["refused"] == {"fast_math": "fast_math broke three kernels."}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("call_cublas_gemm", "libraries"),
        ("capture_cuda_graph", "graphs"),
        ("multi_stream_overlap", "stream"),
        ("memoize_output", "one call to the next"),
        ("nvcc_flags", "fixed options"),
        ("hardcode_result", "whole result"),
    ],
)
def test_a_forbidden_technique_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    assert reason in str(forbidden(name))
    model = ScriptedChatModel(
        by_role={
            "optimization_proposer": [proposals(proposal(name, new=CARD)),
                                      proposals(proposal(name, new=CARD), "online_softmax")],
            "kernel_writer": [good("kernel_writer")],
        }
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    assert reason in str(model.calls_of("optimization_proposer")[1].messages[-1].content)
    assert reason in ran.told("proposals")[0]["refused"][name]
    assert [step.technique for step in ran.steps] == ["online_softmax"]


@pytest.mark.parametrize("name", ["streamline_loads", "graphics_layout", "grid_sync"])
def test_harmless_names_are_not_refused(name: str) -> None:
    assert forbidden(name) is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (proposals(NEW), "nothing describes it"),
        (proposals("Fast Math"), "technique"),
        (proposals("__import__"), "technique"),
        (proposals(), "proposals"),
        ({"proposals": [{"technique": "fast_math"}]}, "reason"),
        (proposals(proposal(NEW, new=CARD | {"expected_speedup": 1e9})), "expected_speedup"),
        (proposals(proposal(NEW, new=CARD | {"description": ""})), "description"),
        (proposals(proposal(NEW, new={"description": "x"})), "applies_when"),
    ],
)
def test_a_proposal_that_cannot_be_used_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any], reason: str
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [reply, proposals("online_softmax")],
                 "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    assert reason in str(model.calls_of("optimization_proposer")[1].messages[-1].content)
    assert [step.technique for step in ran.steps] == ["online_softmax"]


def test_without_a_built_in_rewrite_or_a_model_nothing_can_be_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([proposals("online_softmax"), proposals("fast_math")])
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", steps=1)
    assert "nothing here can write it" in str(model.calls[1].messages[-1].content)
    assert [step.technique for step in ran.steps] == ["fast_math"]


@pytest.mark.parametrize("replies", every(6, BAD))
def test_without_proposals_the_knowledge_base_proposes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(replies), "optimization_proposer", steps=1)
    assert ran.result.best_us == 50.0
    assert ran.told("proposals")[0]["author"].startswith(f"builtin ({CURRENT} failed: ")


@pytest.mark.parametrize(
    ("claimed", "expected"), [(1.5, 0.2027), (100.0, MOST_EXPECTED), (0.2, -0.8047)]
)
def test_what_a_model_claims_is_half_believed_and_weakly(claimed: float, expected: float) -> None:
    new = ProposedTechnique.model_validate(
        proposal(NEW, new=CARD | {"expected_speedup": claimed})
    )
    optimization = new_optimization(new)
    assert optimization.prior_log_gain == pytest.approx(expected, abs=1e-3)
    assert optimization.prior_strength == 0.5
    assert optimization.parameters == {"rows": [4, 8]}


def test_the_built_in_proposer_leaves_to_a_model_what_has_no_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=good("kernel_writer"))
    ran = run(tmp_path, monkeypatch, model, "kernel_writer", steps=1)
    assert len(ran.told("proposals")[0]["techniques"]) > 2
    plain = run(new_folder(tmp_path, "plain"), monkeypatch, ScriptedChatModel(), steps=1)
    assert len(plain.told("proposals")[0]["techniques"]) == 2


# Optimization selector -------------------------------------------------------------------------


def test_a_choice_is_lowered_and_its_expectation_is_the_policys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=CHOICE)
    ran = run(tmp_path, monkeypatch, model, "optimization_selector", steps=1)
    assert [step.technique for step in ran.steps] == ["fast_math"]
    (told,) = ran.told("choice")
    assert (told["reason"], told["author"]) == ("exp is slow.", CURRENT)
    prompt = model.calls[0].prompt
    for needed in ("- fast_math (expected 1", "- vectorize_memory_access (expected 1",
                   "step 1 of 1", "takes what is most likely", "A draw by the policy"):  # fmt: skip
        assert needed in prompt, needed
    plain = run(new_folder(tmp_path, "plain"), monkeypatch, ScriptedChatModel(), steps=2)
    same = next(step for step in plain.steps if step.technique == "fast_math")
    assert ran.steps[0].expected_log_gain == pytest.approx(same.expected_log_gain, abs=0.2)


def test_stop_ends_the_trajectory_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([CHOICE, {"technique": "stop", "reason": "Every byte moves once."}])
    rewrites = (TextRewrite("fast_math", 0.5), TextRewrite("vectorize_memory_access", 0.9),
                TextRewrite("unroll_loop", 0.9))  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_selector", rewrites=rewrites, steps=3)
    assert [step.technique for step in ran.steps] == ["fast_math"]
    assert len(model.calls) == 2 and ran.result.best_us == 50.0
    assert "answer `stop`" in model.calls[0].prompt
    assert "others explore" not in model.calls[0].prompt, "there is one rollout"


def test_nothing_may_be_proposed_under_the_name_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals(proposal("stop", new=CARD), "fast_math")],
                 "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    assert ran.told("proposals")[0]["refused"] == {"stop": "that is no technique"}


def selector_prompt(
    folder: Path, monkeypatch: pytest.MonkeyPatch, card: dict[str, Any]
) -> str:
    """Return what the selector is told after a proposal of fast_math and of a new technique."""
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals("fast_math", proposal(NEW, new=card))],
                 "optimization_selector": [CHOICE], "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    roles = ("optimization_proposer", "optimization_selector", "kernel_writer")
    run(folder, monkeypatch, model, *roles, steps=1)
    return str(model.calls_of("optimization_selector")[0].prompt)


def test_the_proposers_order_and_what_it_expected_are_told_to_the_selector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = selector_prompt(tmp_path, monkeypatch, CARD)
    assert f"as proposed {CARD['expected_speedup']}x; discounted; rank 2)" in prompt
    assert f"a new technique: {str(CARD['description']).rstrip('.')};" in prompt
    assert "never tried; rank 1). fast_math acts on line 1. Avoid when: Memory is" in prompt
    assert f"Avoid when: {CARD['avoid_when']}" in prompt and "`rank` is its order" in prompt


def test_a_proposed_gain_above_what_is_believed_is_told_as_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = selector_prompt(tmp_path, monkeypatch, {**CARD, "expected_speedup": 12.0})
    assert "(expected 1.73x" in prompt and "as proposed 9x or more; discounted" in prompt


def test_a_described_technique_that_was_not_chosen_keeps_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals("fast_math", proposal(NEW, new=CARD)),
                                           proposals("unroll_loop"), proposals("split_k")],
                 "optimization_selector": [CHOICE, chosen("unroll_loop"), chosen(NEW)],
                 "kernel_writer": [good("kernel_writer")] * 3}
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "optimization_proposer", "optimization_selector",
              "kernel_writer", steps=3)  # fmt: skip
    assert [step.technique for step in ran.steps] == ["fast_math", "unroll_loop", NEW]
    first, second, third = model.calls_of("optimization_proposer")
    assert f"- {NEW}: " not in first.prompt
    assert all(f"- {NEW}: {CARD['description']}" in call.prompt for call in (second, third))
    # It stays on the table besides, whoever is asked.
    assert "On the table already" not in first.prompt
    assert all(f"{NEW}: name one again only" in call.prompt for call in (second, third))
    on_the_table = [each["techniques"] for each in ran.told("proposals")]
    assert on_the_table[1:] == [["unroll_loop", NEW], ["split_k", NEW]]


def test_what_was_proposed_for_the_very_kernel_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lose, so that the kernel stays: where two are left, nobody is asked for more."""
    rewrites = tuple(TextRewrite(name, 1.5) for name in ("fast_math", "unroll_loop", "split_k"))
    said = proposals("fast_math", "unroll_loop", "vectorize_memory_access", "split_k")
    asked = {}
    for agents in ("compact", "full"):
        model = ScriptedChatModel(by_role={"optimization_proposer": [said] * 4})
        ran = run(new_folder(tmp_path, agents), monkeypatch, model, "optimization_proposer",
                  rewrites=(*rewrites, TextRewrite("vectorize_memory_access", 1.2)),
                  agents=agents, steps=2, iterations=2)  # fmt: skip
        assert len({step.technique for step in ran.steps}) == 4 == len(ran.steps)
        asked[agents] = len(model.calls_of("optimization_proposer"))
    assert asked == {"compact": 2, "full": 4}


def test_a_model_that_lowers_is_not_shown_what_cannot_act_on_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [proposals("unroll_loop")],
                 "kernel_writer": [good("kernel_writer")]}
    )  # fmt: skip
    run(tmp_path, monkeypatch, model, "optimization_proposer", "kernel_writer", steps=1)
    prompt = model.calls_of("optimization_proposer")[0].prompt
    left_out = prompt.partition("Left out, as their conditions do not hold")[2].split("\n")[0]
    assert "fuse_elementwise_kernels" in left_out and "fast_math" in left_out
    for needed in ("- vectorize_memory_access: ", "Avoid when: "):
        assert needed in prompt, needed
    for unneeded in ("half2_arithmetic", "- fast_math", "wgmma_products"):
        assert unneeded not in prompt, unneeded


def test_rollouts_that_explore_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel(otherwise=CHOICE)
    run(tmp_path, monkeypatch, model, "optimization_selector", steps=1, rollouts=2)
    said = {call.place[1]: "explores beside one" in call.prompt for call in model.calls}
    assert said == {0: False, 1: True}


def test_a_single_proposal_needs_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel([CHOICE])
    ran = run(tmp_path, monkeypatch, model, "optimization_selector", steps=3)
    assert len(model.calls) == 1 and len(ran.steps) == 2
    assert ran.told("choice")[1]["author"] == "builtin"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (CHOICE | {"technique": "split_k"}, "choose one of"),
        (CHOICE | {"technique": "use_cublas"}, "fast_math, vectorize_memory_access"),
        ({"technique": "fast_math"}, "reason"),
        ({"reason": "none"}, "technique"),
    ],
)
def test_a_choice_that_was_not_proposed_is_asked_for_again_with_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: dict[str, str], reason: str
) -> None:
    model = ScriptedChatModel([reply, CHOICE])
    ran = run(tmp_path, monkeypatch, model, "optimization_selector", steps=1)
    content = str(model.calls[1].messages[-1].content)
    assert all(part in content for part in reason.split(", "))
    assert ran.steps[0].technique == "fast_math"


@pytest.mark.parametrize("replies", every(6, BAD))
def test_without_a_choice_the_policy_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(replies), "optimization_selector", steps=1)
    assert ran.steps[0].technique == "vectorize_memory_access"
    assert ran.told("choice")[0]["author"].startswith(f"builtin ({CURRENT} failed: ")


def test_prose_around_the_json_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"Well.\n```json\n{json.dumps(CHOICE)}\n```\nDone."
    ran = run(tmp_path, monkeypatch, ScriptedChatModel([said]), "optimization_selector", steps=1)
    assert ran.steps[0].technique == "fast_math"


# Any reply -------------------------------------------------------------------------------------

FIELDS = ["proposals", "technique", "reason", "new", "expected_speedup", "parameters", "values"]
WORDS = ["fast_math", "vectorize_memory_access", NEW, "use_cublas", "split_k", "1.5x", ""]


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=jsonish(FIELDS, WORDS), second=jsonish(FIELDS, WORDS))
def test_no_reply_ends_the_run_or_loses_the_best(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, first: Any,
    second: Any,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("replies")
    model = ScriptedChatModel(
        by_role={"optimization_proposer": [first, {"proposals": [first]}, {"proposals": [
            proposal(NEW, new=second)]}], "optimization_selector": [first, second]},
        otherwise="nothing more",
    )  # fmt: skip
    ran = run(folder, monkeypatch, model, "optimization_proposer", "optimization_selector", steps=1)
    assert ran.result.best_us == min(
        [100.0, *(step.microseconds_after for step in ran.steps if step.microseconds_after)]
    )


@given(jsonish(FIELDS, WORDS))
def test_the_forms_refuse_without_crashing(reply: Any) -> None:
    for form in (Proposals, Selection, ProposedTechnique):
        try:
            form.model_validate_json(json.dumps(reply))
        except ValidationError:
            pass
