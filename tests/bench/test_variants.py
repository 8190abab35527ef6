"""Policies by name, their settings, and what an ablation stands for."""

from __future__ import annotations

import pytest

from kernelblaster.bench.variants import ablation, lengthened, parse_variants
from kernelblaster.harness.errors import UserError
from kernelblaster.nodes.records.plan import RunContext
from kernelblaster.tools.models.records import Budgets

COMMON = RunContext(device="simulated", budgets=Budgets(evaluations=12))


def test_a_variant_is_a_policy_with_settings() -> None:
    plain, deep = parse_variants("minimal, kernelblaster[rollouts=4, steps=3]", COMMON)
    assert (plain.name, plain.settings) == ("minimal", {"policy": "minimal"})
    assert deep.name == "kernelblaster[rollouts=4,steps=3]"
    assert deep.folder == "kernelblaster-rollouts-4-steps-3"
    context = deep.in_place_of(COMMON)
    assert (context.rollouts, context.steps, context.policy) == (4, 3, "kernelblaster")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minmal", "did you mean minimal"),
        ("kernelblaster[", "write NAME or NAME"),
        ("kernelblaster[steps]", "steps is no SETTING=VALUE"),
        ("kernelblaster[steps=0]", "greater than or equal to 1"),
        ("kernelblaster[stepps=1]", "there is no setting stepps"),
        ("kernelblaster[seed=1]", "there is no setting seed of one policy"),
        ("zero_shot[rounds=7]", "the policy zero_shot cannot be told that"),
        ("minimal[rollouts=7]", "the policy minimal cannot be told that"),
        ("minimal[memory=off]", "minimal"),
        ("minimal,minimal", "named twice"),
        ("", "names none"),
    ],
)
def test_what_is_no_variant_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_variants(text, COMMON)
    assert "\n" not in str(caught.value)


def test_an_ablation_goes_through_the_values_of_one_setting() -> None:
    depth = ablation("depth", "builtin", COMMON)
    assert [each.settings["steps"] for each in depth] == [1, 2, 4, 8]
    assert depth[0].name == "kernelblaster[steps=1]"
    memory = ablation("memory", "builtin", COMMON)
    assert [each.settings["memory"] for each in memory] == [
        "live", "frozen", "seed", "off", "shuffled"
    ]  # fmt: skip
    assert [each.settings["gradient"] for each in ablation("gradient", "builtin", COMMON)] == [
        True, False
    ]  # fmt: skip
    with pytest.raises(UserError, match="choose one of memory, "):
        ablation("width", "builtin", COMMON)


def test_the_models_ablation_takes_each_role_from_its_model_in_turn() -> None:
    with pytest.raises(UserError, match="needs --model"):
        ablation("models", "builtin", COMMON)
    model = "kernel_writer=import:a.b:c,gap_analysis=import:a.b:d"
    told = {each.name: each.settings["model"] for each in ablation("models", model, COMMON)}
    assert told == {
        "kernelblaster[models=all]": model,
        "kernelblaster[models=none]": "builtin",
        "kernelblaster[models=all but kernel_writer]": "gap_analysis=import:a.b:d",
        "kernelblaster[models=all but gap_analysis]": "kernel_writer=import:a.b:c",
    }


def test_a_role_that_a_policy_lacks_is_not_asked_of_it() -> None:
    common = COMMON.model_copy(update={"model": "kernel_writer=import:a.b:c,coder=import:a.b:d"})
    loop, rounds = parse_variants("kernelblaster,minimal", common)
    assert loop.settings["model"] == "kernel_writer=import:a.b:c"
    assert rounds.settings["model"] == "coder=import:a.b:d"


def test_loops_are_long_enough_for_the_cap_unless_they_were_chosen() -> None:
    loop, rounds, once = parse_variants("kernelblaster,minimal,zero_shot", COMMON)
    assert lengthened(loop, COMMON, frozenset())["iterations"] == 6
    assert lengthened(rounds, COMMON, frozenset())["rounds"] == 12
    assert "rounds" not in lengthened(once, COMMON, frozenset())
    assert "iterations" not in lengthened(loop, COMMON, frozenset({"iterations"}))
