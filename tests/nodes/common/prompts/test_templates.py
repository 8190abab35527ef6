"""Templates: every one renders, budgets cut what matters least, and the contract told is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
from builtin_support import initial, norm_task, product_task, softmax_task
from hypothesis import given
from hypothesis import strategies as st

import kernelblaster
from kernelblaster.harness.build.toolchain import FLAGS
from kernelblaster.harness.records.evaluations import DeviceIdentity, Evaluation
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.task.contract import signature
from kernelblaster.harness.task.rules import (
    CASES,
    LARGE_FACTORS,
    LARGEST_SHARE,
    OFFSETS,
    OWN_ERROR_FACTOR,
)
from kernelblaster.harness.vetting.symbols import check_symbols
from kernelblaster.nodes.common.prompts.render import render
from kernelblaster.nodes.common.prompts.subject import (
    bounds_context,
    kernel_context,
    task_context,
)
from kernelblaster.tools.models.fitting import fitted, of_sections, tokens_of
from kernelblaster.tools.models.records import CONTEXT_TOKENS, Message, Section

IDENTITY = DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="nvcc")


def count_tokens(messages: tuple[Message, ...]) -> int:
    """Return how many tokens messages have, about."""
    return tokens_of(messages)


def evaluation(task: Task) -> Evaluation:
    launch = LaunchProfile(
        kernel="k", grid=(1, 1, 1), block=(256, 1, 1), microseconds=10.0,
        metrics={"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 50.0},
        bottleneck="dram",
    )  # fmt: skip
    return Evaluation.model_validate(
        {
            "key": "k", "source_sha256": "0", "task_id": task.id, "device": IDENTITY,
            "outcome": "passed",
            "timing": {"microseconds": 10.0, "samples": (10.0,), "interval": (10.0, 10.0),
                       "method": "time model", "provenance": "simulated"},
            "profile": {"launches": (launch,), "gpu": "H100", "provenance": "simulated"},
        }
    )  # fmt: skip


def lowering(task: Task, budget: int = 16_000, **changes: Any) -> tuple[Message, ...]:
    context = task_context(task, IDENTITY) | kernel_context(
        task, initial(task), evaluation(task), ()
    )
    context |= {
        "technique": "fast_math: faster functions", "technique_name": "fast_math", "target": "",
        "parameters": "", "rounds": 0, "file_id": "kernel-0",
        "expected": "expected 1.2x", "settings": "",
        "lessons": "- correction: words", "tried": "- unroll_loop: 1.1x", "came": "", "lost": "",
    }  # fmt: skip
    return render("kernel_writer", budget, **(context | changes))


# Rendering -------------------------------------------------------------------------------------


def test_a_lowering_prompt_holds_all_that_a_careful_engineer_needs() -> None:
    task = norm_task()
    system, user = lowering(task)
    assert (system.role, user.role) == ("system", "user")
    for needed in (signature(task), "workspace_bytes", "smaller dimensions", "poison", "`stream`",
                   "cudaMalloc", "0.0001 + 0.0001 * |expected|", "sm_90", "232448 bytes",
                   "X: float [4096, 1024] | [33, 40]", "SEARCH", "PARAMETERS"):  # fmt: skip
        assert needed in system.content, needed
    for needed in ("1 #include", "limited by dram", "fast_math", "expected 1.2x", "unroll_loop",
                   "- correction: words", "NOT APPLICABLE"):  # fmt: skip
        assert needed in user.content, needed


def test_what_stays_the_same_from_step_to_step_comes_first_for_the_servers_cache() -> None:
    one, _ = lowering(norm_task())
    other, _ = lowering(norm_task(), technique="unroll_loop: words", technique_name="unroll_loop",
                        tried="", lessons="")  # fmt: skip
    assert one == other


@pytest.mark.parametrize("task", [softmax_task(), norm_task(), product_task()])
def test_a_lowering_prompt_of_a_plain_kernel_is_under_three_thousand_tokens(task: Task) -> None:
    assert count_tokens(lowering(task)) < 3000


def test_every_template_of_these_roles_renders() -> None:
    task = norm_task()
    context = task_context(task, IDENTITY)
    whole = {"rest": None, "solution": "", "examples": ()} | bounds_context(task, IDENTITY)
    first = render("initial_cuda", CONTEXT_TOKENS["initial_cuda"], **context, **whole)
    assert signature(task) in first[0].content and "aten.layer_norm" in first[1].content
    assert "SEARCH" not in first[0].content, "there is no file to edit yet"
    soft = render("soft_verifier", 12_000, **context, listing="1 x", claims="- it was claimed",
                  changes="")
    assert "hard_coded" in soft[0].content and "- it was claimed" in soft[1].content
    (mend,) = render("repair", 6000, failure="It crashed.", listing="", keep="fast_math")
    assert mend.role == "user" and "keep fast_math" in mend.content


def test_a_value_that_a_template_misses_is_an_error_and_no_gap() -> None:
    with pytest.raises(jinja2.UndefinedError, match="signature"):
        render("kernel_writer", 16_000, technique="x")


def test_code_that_looks_like_a_template_is_shown_as_it_is() -> None:
    _, user = lowering(norm_task(), listing="1 {{ 7 * 7 }} {% raw %} {# c #}")
    assert "1 {{ 7 * 7 }} {% raw %} {# c #}" in user.content


def test_half_types_are_told_their_own_tolerance() -> None:
    half = product_task().model_copy(update={"dtype": "float16"})
    system, _ = lowering(half)
    assert "TF32, bfloat16 or half miss" not in system.content


# Budgets ---------------------------------------------------------------------------------------


def test_a_budget_cuts_the_least_important_first_and_says_so() -> None:
    whole = count_tokens(lowering(norm_task(), lessons="lesson " * 200, tried="tried " * 200))
    _, user = lowering(
        norm_task(), budget=whole - 100, lessons="lesson " * 200, tried="tried " * 200
    )
    assert "lesson lesson" not in user.content and "tried tried" in user.content
    assert "(Left out for length: Lessons from other kernels.)" in user.content


def test_what_must_stay_stays_whatever_the_budget() -> None:
    _, user = lowering(norm_task(), budget=1)
    assert "1 #include" in user.content and "fast_math" in user.content
    assert "unroll_loop" not in user.content


sections = st.lists(
    st.builds(
        Section,
        title=st.text("abc", max_size=5),
        keep=st.none() | st.integers(0, 5),
        text=st.text(max_size=60),
    ),
    max_size=8,
)


@given(sections, st.integers(0, 100))
def test_what_is_left_fits_or_cannot_be_cut(parts: list[Section], budget: int) -> None:
    (told,) = fitted([of_sections(parts)], budget)
    kept, left_out = told.sections, told.left_out
    assert tokens_of([told]) <= budget or all(part.keep is None for part in kept)
    assert len(kept) + len(left_out) == len(parts)
    assert [part for part in parts if part.keep is None] == [p for p in kept if p.keep is None]
    cut = list(parts)
    for part in kept:
        cut.remove(part)
    if cut and any(part.keep is not None for part in kept):
        lowest = min(part.keep for part in kept if part.keep is not None)
        assert max(part.keep or 0 for part in cut) <= lowest


# What prompts say of the harness is what the harness does ---------------------------------------


def contract() -> str:
    return lowering(norm_task())[0].content


def test_every_host_call_that_the_contract_allows_is_allowed() -> None:
    allowed = next(line for line in contract().split("\n") if line.startswith("- launch() only"))
    names = re.findall(r"\bcuda[A-Z]\w+", allowed)
    assert len(names) >= 8
    assert check_symbols(names) == ()


def test_what_the_contract_says_is_refused_is_refused() -> None:
    refused = ("cudaMalloc", "_Znwm", "cudaDeviceSynchronize", "cudaStreamCreate",
               "cudaEventRecord", "cudaGraphLaunch", "cudaLaunchCooperativeKernelMultiDevice",
               "cuLaunchKernel", "cublasSgemm_v2", "cudnnCreate", "printf", "fopen",
               "pthread_create", "clock_gettime", "rand", "__cxa_throw")  # fmt: skip
    assert len(check_symbols(refused)) == len(refused)


def test_the_flags_that_the_contract_names_are_the_compilers() -> None:
    for flag in ("-std=c++17", "-O3"):
        assert flag in FLAGS and flag in contract()
    assert not any("fast" in flag for flag in FLAGS)


def test_the_kinds_of_inputs_that_the_contract_names_are_those_of_the_harness() -> None:
    told = re.search(r"Inputs: (.*?)\. Integers", contract())
    assert told is not None and len(told[1].split("; ")) == len(CASES)
    assert f"times up to {LARGE_FACTORS[0]:.0f}" in told[1]
    assert f"normal around {OFFSETS[0]:.0f}" in told[1]


def test_a_tensor_that_does_not_hold_any_values_is_named_where_the_rules_are() -> None:
    assert "forward() accepts;" in contract()
    task = norm_task()
    name = task.full.of_role("input")[0].name
    narrow = task.model_copy(update={"variation": Variation(levels={name: "positive"})})
    assert f"forward() accepts ({name}: no negative values);" in lowering(narrow)[0].content
    for fixed, told in (((name,), "as the reference has it"), ((), "drawn anew")):
        own = Variation(levels={name: "own"}, fixed=fixed)
        narrow = task.model_copy(update={"variation": own})
        assert f"forward() accepts ({name}: {told}" in lowering(narrow)[0].content


def test_precision_is_spoken_of_where_something_is_multiplied() -> None:
    told = "Products of factors rounded once"
    assert told in lowering(product_task())[0].content
    assert told not in lowering(softmax_task())[0].content


def test_included_texts_end_their_line() -> None:
    package = Path(kernelblaster.__file__).parent
    texts = [path for room in ("nodes", "tools") for path in (package / room).rglob("_*.md")]
    assert texts and [path.name for path in texts if not path.read_text().endswith("\n")] == []


def test_the_factors_of_a_tolerance_are_those_of_the_checks() -> None:
    assert f"({OWN_ERROR_FACTOR:g} times its error)" in contract()
    assert f"never over {LARGEST_SHARE:.0%} of" in contract()


def test_all_who_write_or_judge_a_kernel_are_told_the_same_rules() -> None:
    """One text: what is said to one of them is said to all, word for word."""
    task = norm_task()
    rules = contract().partition("# How it is judged")[2].strip().partition("\n\n")[0]
    assert rules.startswith("Each element:") and rules.endswith("are refused.")
    context = task_context(task, IDENTITY) | {
        "rest": None, "solution": "", "listing": "1 x", "examples": (),
    }  # fmt: skip
    about = dict.fromkeys(
        ("failure", "summary", "counters", "last", "path", "claims", "changes", "profile",
         "finding", "advice", "method", "example", "example_task", "examples"), "",
    ) | bounds_context(task, IDENTITY) | {"mode": "correction"}  # fmt: skip
    for role in ("initial_cuda", "coder", "judge", "soft_verifier"):
        told = render(role, 16_000, **(context | about))
        assert rules in told[0].content, role
