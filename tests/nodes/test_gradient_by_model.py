"""Policy evaluation, gap analysis, parameter update by a model: words beside measured figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from every_role import good, ids
from graph_support import INITIAL, TextRewrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from model_role_support import BAD, TWO, jsonish, new_folder, run
from often_or_seldom import every
from pydantic import ValidationError
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.records.evidence import Step
from kernelblaster.nodes.common.history.sequences import chain_of
from kernelblaster.nodes.common.prompts.iteration import (
    diffs_text,
    evidence_of,
    kernels_of,
    labels_of,
    measured_text,
    moved_text,
    resolve,
    steps_text,
)
from kernelblaster.nodes.parameter_update.prompt import notes_on, steps_of
from kernelblaster.nodes.parameter_update.reply import KnowledgeNotes, ModelLesson
from kernelblaster.nodes.policy_evaluation.reply import PolicyRemarks
from kernelblaster.tools.models.records import Role

UNLISTED = (TextRewrite("split_k", 0.5), TextRewrite("fast_math", 0.8))
"""The state of the text device does not list the first."""
Reply = Callable[[list[BaseMessage]], Any]


def about(make: Callable[[list[tuple[str, str]]], Any]) -> Reply:
    """Return a reply made from the ids and techniques in the prompt."""

    def reply(messages: list[BaseMessage]) -> Any:
        return make(ids("\n".join(str(message.content) for message in messages)))

    return reply


def step(number: int, technique: str, log_gain: float | None, parent: str, child: str | None,
         rollout: int = 0, **changes: Any) -> Step:  # fmt: skip
    values: dict[str, Any] = {
        "run": "r", "iteration": 0, "rollout": rollout, "step": number, "state_id": "s",
        "technique": technique, "expected_log_gain": 0.1,
        "outcome": "race" if log_gain is None else "passed", "log_gain": log_gain,
        "parent_sha256": parent, "child_sha256": child, "microseconds_before": 10.0,
        "bottleneck_before": "dram", "author": "builtin",
        "evidence_id": f"{number}{rollout}" + "ab" * 31,
    }  # fmt: skip
    return Step(**(values | changes))


CHAIN = [
    step(0, "a_step", math.log(2.0), "k0", "k1"),
    step(1, "b_step", math.log(1.5), "k1", "k2"),
    step(2, "c_step", None, "k2", "k3"),
    step(0, "d_step", math.log(0.5), "k0", "k4", rollout=1),
]
A, B, C, D = (str(each.evidence_id)[:6] for each in CHAIN)


# Policy evaluation -----------------------------------------------------------------------------


def test_remarks_stand_beside_the_figures_and_reach_gap_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=good("policy_evaluation"))
    ran = run(tmp_path, monkeypatch, model, "policy_evaluation")
    (told,) = ran.told("policy_evaluation")
    assert told["author"] == CURRENT and told["summary"].startswith("Expectations of untried")
    assert any("fast_math was guessed." in lesson.text for lesson in ran.lessons)
    prompt = model.calls[0].prompt
    for needed in ("K0 -> K1", "vectorize_memory_access in ", "2x", "100% of 2 steps passed"):
        assert needed in prompt, needed
    assert model.calls[0].place == (0,)


def test_ids_that_are_no_steps_are_asked_for_again_with_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"remarks": [{"evidence": ["ffffff"], "text": "x"}], "summary": "y"}
    model = ScriptedChatModel([wrong], otherwise=good("policy_evaluation"))
    ran = run(tmp_path, monkeypatch, model, "policy_evaluation")
    asked = str(model.calls[1].messages[-1].content)
    assert "no step has the id ffffff" in asked
    assert all(name in asked for name, _ in ids(model.calls[0].prompt))
    assert ran.told("policy_evaluation")[0]["author"] == CURRENT


# Gap analysis ----------------------------------------------------------------------------------


def test_causes_and_conditions_reach_the_lessons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=good("gap_analysis"))
    ran = run(tmp_path, monkeypatch, model, "gap_analysis")
    (told,) = ran.told("gap_analysis")
    assert told["author"] == CURRENT
    assert all("Fewer bytes move. Condition: Rows are reread" in gap["explanation"]
               for gap in told["gaps"])  # fmt: skip
    texts = [lesson.text for lesson in ran.lessons if lesson.technique == "fast_math"]
    assert any("Fewer bytes move." in text for text in texts)
    prompt = model.calls[0].prompt
    for needed in ("+did: vectorize_memory_access", "DRAM throughput is 100% -> 50%", "1. ",
                   "# The device"):  # fmt: skip
        assert needed in prompt, needed


def test_a_sequence_is_taken_when_it_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = (*TWO, TextRewrite("unroll_loop", 0.9))
    model = ScriptedChatModel(
        [about(lambda found: {"causes": [], "sequences": [
            {"evidence": [found[0][0], found[1][0]], "cause": "The first frees registers."}]})]
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "gap_analysis", rewrites=three, steps=3)
    first, second, _ = (each.technique for each in ran.steps)
    (told,) = ran.told("gap_analysis")
    words = [gap["explanation"] for gap in told["gaps"]]
    (said,) = [text for text in words if text.startswith(f"{first} then {second} gained")]
    assert "The first frees registers" in said
    assert any(lesson.technique == f"{first} then {second}" for lesson in ran.lessons)


def test_a_listed_sequence_may_be_called_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = (TextRewrite("fast_math", 0.7), TextRewrite("unroll_loop", 0.7), *TWO)

    def reply(messages: list[BaseMessage]) -> Any:
        prompt = "\n".join(str(message.content) for message in messages)
        listed = re.findall(r"^(\d+)\. sequence: ", prompt, re.MULTILINE)
        return {"causes": [], "sequences": [], "unordered": [int(each) for each in listed]}

    asked = ScriptedChatModel([reply])
    ran = run(tmp_path, monkeypatch, asked, "gap_analysis", rewrites=three, steps=3)
    (told,) = ran.told("gap_analysis")
    assert re.search(r"^\d+\. sequence: ", asked.calls[0].prompt, re.MULTILINE), "nothing to say"
    assert not [gap for gap in told["gaps"] if gap["kind"] == "sequence"]
    assert not [lesson for lesson in ran.lessons if " then " in (lesson.technique or "")]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda found: {"causes": [], "sequences": [], "unordered": [99]}, "is no sequence"),
        (lambda found: {"causes": [{"gap": 99, "cause": "x", "condition": ""}], "sequences": []},
         "there is no gap 99"),
        (lambda found: {"causes": [{"gap": 0, "cause": "x"}], "sequences": []}, "gap"),
        (lambda found: {"causes": [], "sequences": [
            {"evidence": [found[1][0], found[0][0]], "cause": "x"}]}, "was not applied to"),
        (lambda found: {"causes": [], "sequences": [
            {"evidence": [found[0][0], found[0][0]], "cause": "x"}]}, "two steps or more"),
    ],
)  # fmt: skip
def test_gaps_and_sequences_that_never_were_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, reason: str
) -> None:
    model = ScriptedChatModel([about(make)], otherwise=good("gap_analysis"))
    ran = run(tmp_path, monkeypatch, model, "gap_analysis")
    assert reason in str(model.calls[1].messages[-1].content)
    assert ran.told("gap_analysis")[0]["author"] == CURRENT


def test_only_steps_that_follow_each_other_and_gained_are_a_sequence() -> None:
    assert [s.technique for s in chain_of([A, B], CHAIN)] == ["a_step", "b_step"]
    for names, reason in (
        ([A, C], "failed"), ([A, D], "not applied"), ([B, A], "not applied"),
        ([A], "two steps"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            chain_of(names, CHAIN)
    losing = [CHAIN[0].model_copy(update={"log_gain": -1.0}), CHAIN[1]]
    with pytest.raises(ValueError, match="gained nothing"):
        chain_of([A, B], losing)
    flat = [CHAIN[0], CHAIN[1].model_copy(update={"log_gain": 0.02})]
    with pytest.raises(ValueError, match="fewer than two of these steps gained"):
        chain_of([A, B], flat)


# Parameter update ------------------------------------------------------------------------------


def lesson(found: list[tuple[str, str]], at: int = 0, **changes: Any) -> dict[str, Any]:
    name, technique = found[at]
    values = {"kind": "condition", "techniques": [technique], "evidence": [name],
              "text": "Only where rows are reread."}  # fmt: skip
    return {"lessons": [values | changes], "cards": []}


def test_a_lesson_is_written_with_measured_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel([about(lesson)]), "parameter_update")
    (written,) = [each for each in ran.lessons if each.author == CURRENT]
    first = ran.steps[0]
    assert "Only where rows are reread. Simulated: " in written.text
    assert written.text.endswith(f"{math.exp(first.log_gain or 0):.3g}x in 1 try.")
    assert (written.technique, written.state) == (first.technique, first.state_id)
    assert written.claimed_log_gain == first.log_gain
    assert written.evidence == (first.evidence_id,)
    same = [x for x in ran.lessons if (x.technique, x.state) == (written.technique, written.state)]
    assert same == [written], "it takes the place of the lesson by rule"
    assert len(ran.lessons) > 1, "the others by rule stay"
    assert ran.told("parameter_update")[0]["author"] == CURRENT


def test_a_composite_has_the_gain_of_its_steps_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [about(lambda found: {"cards": [], "lessons": [
            {"kind": "composite", "techniques": [name for _, name in found],
             "evidence": [name for name, _ in found], "text": "First widen, then speed up."}]})]
    )  # fmt: skip
    ran = run(tmp_path, monkeypatch, model, "parameter_update")
    (written,) = [each for each in ran.lessons if each.author == CURRENT]
    assert written.technique == " then ".join(each.technique for each in ran.steps)
    assert written.claimed_log_gain == pytest.approx(math.log(2.5))
    assert written.text.endswith("Simulated: 2.5x together.")


def test_a_card_is_written_for_a_technique_listed_here_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(otherwise=good("parameter_update"))
    ran = run(tmp_path, monkeypatch, model, "parameter_update", rewrites=UNLISTED)
    assert "## Cards wanted" in model.calls[0].prompt
    where = next(each.state_id for each in ran.steps if each.technique == "split_k")
    listed = ran.listed[where]["split_k"]
    assert listed.applies_when == "Rows are reread."
    assert listed.notes.startswith("Pad rows. ") and "Learned on elementwise" in listed.notes
    assert listed.prior_log_gain == pytest.approx(0.5 * math.log(2.0)), "half of what was measured"


def test_lessons_there_are_already_are_shown_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = str(tmp_path / "kb")
    for name in ("one", "two"):
        model = ScriptedChatModel([about(lesson)])
        run(new_folder(tmp_path, name), monkeypatch, model, "parameter_update",
            knowledge=knowledge, start=INITIAL)  # fmt: skip
    assert "Only where rows are reread." in model.calls[0].prompt


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda found: lesson(found, evidence=["0000000"]), "no step has the id"),
        (lambda found: lesson(found, techniques=["use_cublas"]), "is about"),
        (lambda found: lesson(found, evidence=[found[1][0]]), "is about"),
        (lambda found: lesson(found, techniques=["a", "b"]), "use `composite`"),
        (lambda found: lesson(found, text="It gained 7.5x here."), "no step measured"),
        (lambda found: lesson(found, text="Always 9x faster."), "no step measured"),
        (lambda found: lesson(found, kind="deprecation"), "kind"),
        (lambda found: lesson(found, text=""), "text"),
        (lambda found: lesson(found, kind="composite", evidence=[found[0][0], found[1][0]],
                              techniques=[found[1][1], found[0][1]]), "in this order"),
    ],
)  # fmt: skip
def test_lessons_that_the_steps_do_not_show_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, reason: str
) -> None:
    model = ScriptedChatModel([about(make), about(lesson)])
    ran = run(tmp_path, monkeypatch, model, "parameter_update")
    assert reason in str(model.calls[1].messages[-1].content)
    assert len([each for each in ran.lessons if each.author == CURRENT]) == 1


def test_of_the_steps_that_a_lesson_cites_its_techniques_own_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        [about(lambda found: lesson(found, evidence=[found[0][0], found[1][0]]))]
    )
    ran = run(tmp_path, monkeypatch, model, "parameter_update")
    assert len(model.calls) == 1, "asked once"
    (written,) = [each for each in ran.lessons if each.author == CURRENT]
    assert len(written.evidence) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It gained 2x as measured.", "From 1.5x to 2.0x.", "Tiles of 16x16 help.", "Unroll 4x.",
        "An 8x8 tile, float4 loads, 3.0x: no.",
    ],
)  # fmt: skip
def test_gains_that_were_measured_and_other_numbers_may_be_told(text: str) -> None:
    note = {"lessons": [{"kind": "condition", "techniques": ["a_step"], "evidence": [A],
                         "text": text}], "cards": []}  # fmt: skip
    form = notes_on(CHAIN)
    if "no" in text:
        with pytest.raises(ValidationError, match="no step measured"):
            form.model_validate(note)
    else:
        form.model_validate(note)


def test_failures_are_lessons_without_a_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrites = (TextRewrite("remove_barriers", 0.1, outcome="race"), *TWO)

    def reply(found: list[tuple[str, str]]) -> dict[str, Any]:
        return lesson(found, [name for _, name in found].index("remove_barriers"))

    model = ScriptedChatModel([about(reply)])
    ran = run(tmp_path, monkeypatch, model, "parameter_update", rewrites=rewrites, steps=3,
              knowledge=str(tmp_path / "kb"))  # fmt: skip
    (written,) = [each for each in ran.lessons if each.author == CURRENT]
    assert written.claimed_log_gain is None
    assert "none passed (race)" in written.text


# All three -------------------------------------------------------------------------------------

GRADIENT: tuple[Role, ...] = ("policy_evaluation", "gap_analysis", "parameter_update")


@pytest.mark.parametrize("role", GRADIENT)
@pytest.mark.parametrize("replies", every(6, BAD))
def test_without_a_usable_reply_the_rules_learn_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role, replies: list[Any]
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(replies), role, steps=1)
    assert ran.told(role)[0]["author"].startswith(f"builtin ({CURRENT} failed: ")
    assert {each.author for each in ran.lessons} == {"builtin"}
    assert ran.result.best_us == 50.0


@pytest.mark.parametrize("role", GRADIENT)
def test_prose_around_the_json_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    def said(messages: list[BaseMessage]) -> str:
        return f"Here:\n```json\n{json.dumps(good(role)(messages))}\n```\nThat is all."

    ran = run(tmp_path, monkeypatch, ScriptedChatModel([said]), role)
    assert ran.told(role)[0]["author"] == CURRENT


def test_an_iteration_without_steps_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel()
    ran = run(tmp_path, monkeypatch, model, *GRADIENT, rewrites=())
    assert model.calls == [] and ran.steps == []


FIELDS = ["remarks", "evidence", "text", "summary", "causes", "gap", "cause", "sequences",
          "lessons", "kind", "techniques", "cards", "technique"]  # fmt: skip
WORDS = ["fast_math", "condition", "composite", A, "1.5x", "vectorize_memory_access", ""]


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(jsonish(FIELDS, WORDS), jsonish(FIELDS, WORDS))
def test_no_reply_ends_the_run_or_loses_the_best(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, first: Any,
    second: Any,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("replies")
    model = ScriptedChatModel(
        [first, {"remarks": [first], "summary": "s"}, {"causes": [first], "sequences": [second]},
         {"lessons": [first, second], "cards": []}, second], otherwise="nothing more",
    )  # fmt: skip
    assert run(folder, monkeypatch, model, *GRADIENT, steps=1).result.best_us == 50.0


@given(jsonish(FIELDS, WORDS), st.lists(st.sampled_from([A, B, C, D, "", "f"]),
                                        min_size=1, max_size=4),
       st.lists(st.sampled_from(["a_step", "b_step", "c_step", "x"]), min_size=1, max_size=3),
       st.sampled_from(["condition", "composite"]))  # fmt: skip
def test_a_lesson_rests_on_steps_about_its_techniques(
    reply: Any, names: list[str], techniques: list[str], kind: Any
) -> None:
    for form in (KnowledgeNotes, PolicyRemarks):
        try:
            form.model_validate_json(json.dumps(reply))
        except ValidationError:
            pass
    wanted = ModelLesson(kind=kind, techniques=tuple(techniques), evidence=tuple(names), text="x")
    try:
        found = steps_of(wanted, CHAIN)
    except ValueError as reason:
        assert str(reason)
    else:
        told = [each.technique for each in found]
        assert told == techniques if kind == "composite" else set(told) == set(techniques)


# Text ------------------------------------------------------------------------------------------


def test_steps_are_told_with_ids_kernels_and_outcomes() -> None:
    lines = steps_text(CHAIN, {"s": "a state"}).splitlines()
    assert lines[0] == (
        f"- {A} (rollout 0, step 1, K0 -> K1): a_step in \"a state\": expected 1.11x; 2x"
    )
    assert "K2 -> K3): c_step" in lines[2] and lines[2].endswith("failed: race")
    assert lines[3].endswith("0.5x (slower)") and "(rollout 1, step 1, K0 -> K4)" in lines[3]
    assert kernels_of(CHAIN) == {"k0": "K0", "k1": "K1", "k2": "K2", "k3": "K3", "k4": "K4"}
    assert measured_text(CHAIN[2:3]) == "1 try, none passed (race)"
    assert measured_text(CHAIN) == "1.14x in 3 of 4 tries"
    flat = CHAIN[0].model_copy(update={"log_gain": 0.004})
    assert measured_text([flat]) == "no gain (1.004x) in 1 try"
    assert steps_text([flat], {}).endswith("; no gain (1.004x)")


@given(st.sets(st.text("ab", min_size=1, max_size=9).map(lambda text: text.ljust(64, "0")),
               min_size=1, max_size=12))  # fmt: skip
def test_labels_tell_all_steps_apart_and_are_understood(names: set[str]) -> None:
    steps = [
        step(at, "t", 0.1, "k", f"c{at}", evidence_id=name) for at, name in enumerate(sorted(names))
    ]
    labels = labels_of(steps)
    assert len(set(labels.values())) == len(names)
    for each in evidence_of(steps):
        name = str(each.evidence_id)
        assert resolve([labels[name]], steps) == [each] == resolve([name, labels[name]], steps)
    with pytest.raises(ValueError, match="no step has the id"):
        resolve(["zzz"], steps)


def test_long_changes_are_cut_and_say_so() -> None:
    before = "\n".join(f"a{at}" for at in range(200))
    text = diffs_text([("E1", before, before.replace("a", "b")), ("E2", "x", "y" * 20_000)])
    assert "more lines)" in text and "E2" not in text


def test_what_replaces_lines_comes_before_what_adds_some() -> None:
    before = "start\nbody old\nend"
    after = "helper\n" * 60 + "start\nbody new\nend"
    text = diffs_text([("E1", before, after)])
    assert "-body old" in text and "+body new" in text and "more lines)" in text


def test_of_a_file_written_anew_its_kernels_are_shown_and_not_its_sizes() -> None:
    sizes = [f"constexpr int S{at} = {at};" for at in range(50)]
    helpers = [f"__device__ float help{at}(float x) {{ return x * {at}; }}" for at in range(50)]
    kernel = ["__global__ void product(float* out) {", "    mma(out);", "}"]
    after = "\n".join(["#include <mma.h>", *sizes, *helpers, *kernel])
    text = diffs_text([("E1", "__global__ void old(float* out) {\n    add(out);\n}", after)])
    assert "+    mma(out);" in text and "constexpr" not in text and "#include" not in text
    assert "help0(" in text and "help49(" not in text


def test_figures_that_moved_are_told_the_largest_first() -> None:
    still = [0.5] * len(DIMENSIONS)
    moved = list(still)
    names = [dimension.name for dimension in DIMENSIONS]
    moved[names.index("bank_conflicts")], moved[names.index("fma")] = 0.0, 0.9
    assert moved_text(still, still) == ""
    assert moved_text(still, moved) == (
        "50% -> 0% of the shared wavefronts are conflicts; the FMA pipe is 50% -> 90% busy"
    )
