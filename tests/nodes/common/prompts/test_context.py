"""What goes into prompts: code, figures beside peaks, the device, experience, failures."""

from __future__ import annotations

import math

import pytest
from builtin_support import initial, norm_task, product_task
from places import DATA

from kernelblaster.harness.bound.arithmetic import multiplies, product_times
from kernelblaster.harness.gpus import GPUS, known_gpu
from kernelblaster.harness.nsight.profile import profile_from_pages
from kernelblaster.harness.records.builds import Diagnostic
from kernelblaster.harness.records.evaluations import Evaluation
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import (
    MOST_DETAILED,
    LaunchProfile,
    LineProfile,
    Profile,
)
from kernelblaster.harness.records.programs import ProgramNode
from kernelblaster.harness.records.timings import Provenance, Timing
from kernelblaster.harness.simt.model.time_model import together
from kernelblaster.harness.task.contract import header
from kernelblaster.memory.knowledge.policy.actions import Forecast
from kernelblaster.memory.knowledge.policy.failures import Reliability
from kernelblaster.memory.knowledge.policy.policy import Prospect
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.policy import ExpectedGain
from kernelblaster.nodes.common.prompts.changes import change_text
from kernelblaster.tools.techniques.catalogue import knowledge_seed
from kernelblaster.tools.wording.bounds import bounds_text, products_text
from kernelblaster.tools.wording.contract import (
    compulsory_bytes,
    program_text,
    reference_text,
    task_header,
)
from kernelblaster.tools.wording.device import device_text, peaks_of, tensor_text
from kernelblaster.tools.wording.experience import (
    ceiling_text,
    expected_text,
    lessons_text,
    settings_text,
    technique_text,
    tried_text,
)
from kernelblaster.tools.wording.failures import MEANING, failure_text
from kernelblaster.tools.wording.listing import excerpt, hot_lines, line_of, listing
from kernelblaster.tools.wording.measurements import attainable, profile_text, summary_text

PAGES = DATA / "ncu"
PERCENT = "avg.pct_of_peak_sustained_elapsed"


def launch(**changes: object) -> LaunchProfile:
    values: dict[str, object] = {
        "kernel": "rows",
        "grid": (32, 1, 1),
        "block": (256, 1, 1),
        "microseconds": 200.0,
        "metrics": {
            f"gpu__dram_throughput.{PERCENT}": 10.0,
            "dram__bytes_read.sum": 3e8,
            "dram__bytes_write.sum": 1e8,
            "smsp__inst_executed.sum": 1000.0,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 400.0,
            "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1e9,
        },
        "terms": {"dram": 120.0, "lsu": 190.0, "atomic": 0.0},
        "bottleneck": "lsu",
        "lines": (
            LineProfile(line=3, instructions=500, sectors=400),
            LineProfile(line=5, instructions=20),
        ),
        "advice": ("Use wider loads.",),
    }
    return LaunchProfile.model_validate({**values, **changes})


def profile(*launches: LaunchProfile, gpu: str = "H100") -> Profile:
    return Profile(launches=launches, gpu=gpu, provenance=Provenance.SIMULATED)


def timing(microseconds: float) -> Timing:
    return Timing(
        microseconds=microseconds, samples=(microseconds,),
        interval=(microseconds, microseconds), method="time model",
        provenance=Provenance.SIMULATED,
    )  # fmt: skip


# Code ------------------------------------------------------------------------------------------


def test_a_listing_numbers_every_line_and_marks_the_hot_ones() -> None:
    assert listing("a\n  b\n\nc\n", hot=[2]) == "1 a\n2>  b\n3\n4 c"
    assert listing("x\n" * 12).split("\n")[0] == " 1 x"


def test_an_excerpt_is_the_hot_lines_with_their_neighbours() -> None:
    source = "".join(f"line {number}\n" for number in range(1, 21))
    assert excerpt(source, [3, 15], around=1).split("\n") == [
        "...", " 2 line 2", " 3>line 3", " 4 line 4", "...", "14 line 14", "15>line 15",
        "16 line 16", "...",
    ]  # fmt: skip
    assert excerpt(source, [1], around=1).startswith(" 1>line 1\n 2 line 2\n...")
    assert excerpt(source, [], around=1) == listing(source)
    assert excerpt("a\nb\n", [1]) == "1>a\n2 b"


def test_hot_lines_are_shares_of_the_launch_they_belong_to() -> None:
    found = hot_lines(profile(launch()))
    assert found == ((3, "50% instructions, 100% global sectors"),)
    negligible = launch(microseconds=1.0, lines=(LineProfile(line=9, instructions=900),))
    assert [line for line, _ in hot_lines(profile(launch(), negligible))] == [3]


def test_hot_lines_without_totals_are_shares_of_what_is_listed() -> None:
    bare = launch(metrics={}, lines=(LineProfile(line=2, instructions=3),
                                     LineProfile(line=4, instructions=1)))  # fmt: skip
    assert hot_lines(profile(bare)) == ((2, "75% instructions"), (4, "25% instructions"))


def test_a_quotation_is_found_whatever_its_spaces_and_line_number() -> None:
    source = "int main() {\n    return  0;\n}\n"
    assert line_of(source, "return 0;") == 2
    assert line_of(source, " 2> return 0;") == 2
    assert line_of(source, "int main() {\nreturn 0;") == 1
    assert line_of(source, "return 1;") is None
    assert line_of(source, "}") is None, "too short to prove anything"


# The contract ----------------------------------------------------------------------------------


def test_the_header_of_both_sizes_says_what_each_generated_file_says() -> None:
    task = norm_task()
    text = task_header(task)
    assert "// input X: float [4096, 1024] | [33, 40]" in text
    assert "// input W: float [1024] | [40]" in text
    for name in ("_NUMEL", "_SIZE_0", "_RANK"):
        assert f"X{name}" in header(task.full) and f"T{name}" in text


def test_the_header_names_half_precision_and_scalars_with_both_values() -> None:
    task = norm_task()
    full = task.full.model_copy(update={"scalars": {"eps": 1e-5}, "dimensions": {"ROWS": 4096}})
    verify = task.verify.model_copy(update={"scalars": {"eps": 1e-5}, "dimensions": {"ROWS": 33}})
    text = task_header(task.model_copy(update={"full": full, "verify": verify}))
    assert "constexpr long long DIM_ROWS = 4096 | 33;" in text
    assert "constexpr double EPS = 1e-05;" in text


def test_the_reference_loses_imports_and_its_docstring_and_nothing_else() -> None:
    source = '"""Words."""\n\nimport torch\n\nN = 4\n\n\nclass Model:\n    """Kept."""\n'
    task = norm_task().model_copy(update={"source": source})
    assert reference_text(task) == 'N = 4\nclass Model:\n    """Kept."""'


def test_the_traced_program_is_one_operation_a_line() -> None:
    text = program_text(product_task())
    assert text == "mm = aten.mm.default(a, b)  # [512, 384]\nreturn mm"
    assert program_text(product_task().model_copy(update={"program": None})) == ""


def test_compulsory_bytes_count_every_tensor_once() -> None:
    assert compulsory_bytes(product_task()) == 4 * (512 * 384 + 512 * 256 + 256 * 384)


def test_products_are_bounded_on_each_arithmetic_that_meets_the_tolerance() -> None:
    task, gpu = product_task(), GPUS["H100"]
    operations = 2 * 512 * 384 * 256
    times = product_times(task, gpu)
    assert times is not None and times.operations == times.fewest == operations
    half = operations / peaks_of(gpu).tensor_fp16 * 1e6
    assert times.microseconds == pytest.approx(
        {"fp32": operations / peaks_of(gpu).fp32 * 1e6, "TF32x3": 6 * half, "fp16x3": 3 * half,
         "bf16x3": 3 * half}
    )  # fmt: skip
    text = bounds_text(task, "H100")
    assert f"{compulsory_bytes(task) / 1e6:.4g} MB" in text and f"TF32x3 {6 * half:.3g} us" in text
    assert "spared" not in text
    assert product_times(norm_task(), gpu) is None and "products" not in bounds_text(
        norm_task(), "H100"
    )
    assert bounds_text(task, "RTX 3060") == ""
    assert multiplies(task) and not multiplies(norm_task())


def test_products_of_what_is_masked_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    node = product_task().program
    assert node is not None
    masked = ProgramNode(
        name="low", op="aten.tril.default", args=({"ref": "a"},), shape=(512, 256),
        dtype="float32",
    )  # fmt: skip
    product = node.nodes[0].model_copy(update={"args": ({"ref": "low"}, {"ref": "b"})})
    program = node.model_copy(update={"nodes": (masked, product)})
    task = product_task().model_copy(update={"program": program})
    times = product_times(task, GPUS["H100"])
    assert times is not None and times.fewest < 0.8 * times.operations
    assert "of masked or zero elements, or end in sums, and can be spared" in bounds_text(
        task, "H100"
    )
    # Of few rows the bytes are the bound, and nobody asks for fewer products.
    few = {each: 4.0 for each in times.microseconds}
    monkeypatch.setattr(
        "kernelblaster.tools.wording.bounds.product_times",
        lambda *_: times.model_copy(update={"microseconds": few}),
    )
    monkeypatch.setattr("kernelblaster.tools.wording.bounds.dram_microseconds", lambda *_: 5.0)
    assert "spared" not in bounds_text(task, "H100")


def test_what_a_fast_convolution_spares_is_no_masked_element() -> None:
    node = product_task().program
    assert node is not None
    named = node.nodes[0].model_copy(update={"op": "aten.conv1d.default"})
    program = node.model_copy(update={"nodes": (named,)})
    task = product_task().model_copy(update={"program": program})
    times = product_times(product_task(), GPUS["H100"])
    assert times is not None
    less = times.model_copy(update={"fewest": times.operations // 3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelblaster.tools.wording.bounds.product_times", lambda *_: less)
        patch.setattr("kernelblaster.tools.wording.bounds.dram_microseconds", lambda *_: 0.0)
        assert "a fast convolution (Winograd, FFT) does without" in bounds_text(task, "H100")


# The device ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("H100", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA GeForce RTX 3060", None),
        ("", None),
    ],
)
def test_a_gpu_is_known_by_its_own_figures_alone(name: str, known: str | None) -> None:
    found = known_gpu(name)
    assert (found.name if found else None) == known


def test_the_peaks_are_those_of_the_data_sheets() -> None:
    peaks = peaks_of(GPUS["H100"])
    assert peaks.fp32 == pytest.approx(67e12, rel=0.01)
    assert peaks.fp64 == pytest.approx(33.5e12, rel=0.01)
    assert peaks.tensor_fp16 == pytest.approx(1070e12, rel=0.01)
    assert peaks.dram_bytes == 3350e9
    assert peaks_of(GPUS["A100"]).fp32 == pytest.approx(19.5e12, rel=0.01)


def test_the_device_is_told_with_its_real_limits() -> None:
    hopper = device_text("H100", "sm_90", "simulated")
    for fact in ("132 SMs", "3350 GB/s", "255 registers", "48 KiB", "232448 bytes", "64 warps"):
        assert fact in hopper
    assert "refuses wgmma" in hopper
    real = device_text("NVIDIA H100 80GB HBM3", "sm_90a", "cuda")
    assert "refuses" not in real and "TMA" in real


def test_an_unknown_gpu_has_the_limits_of_its_architecture_and_no_made_up_peaks() -> None:
    text = device_text("NVIDIA GeForce RTX 3060", "sm_86", "cuda")
    assert "peaks are not known" in text and "TFLOPS" not in text
    assert "101376 bytes" in text
    blank = device_text("Some GPU", "sm_130", "cuda")
    assert "TFLOPS" not in blank and "A block" not in blank


def test_tensor_shapes_are_those_that_the_architecture_and_the_device_know() -> None:
    simulated = tensor_text("H100", "sm_90", "simulated")
    assert "16x16x16" in simulated and "wgmma" not in simulated and "fp8" not in simulated
    assert "int8" in simulated and "65% of the peak" in simulated
    hopper = tensor_text("NVIDIA H200", "sm_90a", "cuda")
    assert "wgmma" in hopper and "fp8" in hopper
    ampere = tensor_text("NVIDIA A100-SXM4-80GB", "sm_80", "cuda")
    assert "16x16x8 of tf32" in ampere and "fp8" not in ampere and "wgmma" not in ampere
    assert tensor_text("NVIDIA Tesla V100", "sm_70", "cuda") == ""


@pytest.mark.parametrize(
    ("dtype", "told", "not_told"),
    [("bfloat16", "bf16", ("tf32", "double", "int8", "fp8")),
     ("float32", "tf32", ("double", "int8", "fp8")),
     ("float64", "8x8x4 of double", ("tf32", "fp16", "mma.sync", "wgmma", "int8"))],
)  # fmt: skip
@pytest.mark.parametrize(("arch", "kind"), [("sm_90", "simulated"), ("sm_90a", "cuda")])
def test_shapes_are_told_of_what_serves_the_tasks_type(
    dtype: str, told: str, not_told: tuple[str, ...], arch: str, kind: str
) -> None:
    text = tensor_text("H100", arch, kind, dtype).partition("Through wmma")[0]
    assert told in text and not [word for word in not_told if word in text]


def test_a_launch_that_takes_hardly_any_time_is_told_in_a_line() -> None:
    small = launch(kernel="small", microseconds=2.0)
    program = profile(launch(microseconds=198.0), small)
    _, last = profile_text(program).split("\n\n")
    assert last.startswith("small<<<") and "\n" not in last
    assert "\n- advice" in profile_text(profile(launch(), launch(microseconds=100.0)))


# Figures ---------------------------------------------------------------------------------------


def test_the_summary_says_how_far_from_moving_each_byte_once() -> None:
    task = product_task()
    text = summary_text(task, profile(launch()), timing(200.0))
    floor = compulsory_bytes(task) / 3350e9 * 1e6
    assert f"{200 / floor:.3g} times" in text and "not measured" in text
    assert products_text(task, GPUS["H100"]) in text
    unknown = summary_text(task, profile(launch(), gpu="RTX 3060"), timing(200.0))
    assert "at the DRAM's peak" not in unknown and "times that" not in unknown


def test_a_launch_is_told_with_figures_beside_their_peaks() -> None:
    text = profile_text(profile(launch()))
    assert text.startswith("rows<<<32, 256>>>: 200 us, limited by lsu")
    assert "2000 GB/s of 3350 (60%)" in text
    assert "2 GFLOP at 10 TFLOPS (14.9% of peak)" in text
    assert "lsu 190 us, dram 120 us" in text and "atomic" not in text
    assert "advice: Use wider loads." in text


def test_the_tensor_pipe_is_told_by_what_nsight_compute_counts_of_it() -> None:
    busy = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 47.5}
    assert "tensor pipe 48 %" in profile_text(profile(launch(metrics=busy)))


def test_what_is_left_is_said_by_the_rule_of_the_time_model() -> None:
    gpu = GPUS["H100"]
    terms = {"dram": 89.0, "l2": 38.2, "compute": 27.9, "lsu": 10.3, "latency": 10.1, "launch": 2.0}
    text = profile_text(profile(launch(terms=terms, microseconds=together(gpu, terms))))
    left = together(gpu, terms) / together(gpu, {"dram": terms["dram"]})
    assert 1.0 < left < 1.2
    assert f"at most {left:.2f}x is left unless fewer bytes move; the parts overlap" in text
    saved = together(gpu, terms) - together(gpu, {**terms, "l2": 0.0})
    assert f"would save: l2 {saved:.3g} us, compute " in text
    assert "launch 0" not in text, "launch hides behind latency"
    alone = profile_text(profile(launch(terms={"lsu": 190.0})))
    assert "unless lsu gets less to do; the other parts are hidden" in alone


def test_of_a_measured_launch_the_bytes_bound_what_is_left() -> None:
    text = profile_text(profile(launch(terms={})))
    assert f"would be {200 / (4e8 / 3350e9 * 1e6):.2f}x faster: more only if fewer move" in text
    assert "faster" not in profile_text(profile(launch(terms={}, microseconds=5000.0)))
    assert "faster" not in profile_text(profile(launch(terms={}), gpu="RTX 3060"))


def test_a_gain_above_what_can_be_had_is_told_so() -> None:
    ceiling = attainable(product_task(), profile(launch()), timing(200.0))
    assert ceiling == pytest.approx(200.0 / (compulsory_bytes(product_task()) / 3350e9 * 1e6))
    assert f"at most {ceiling:.3g}x" in ceiling_text(math.log(ceiling) + 0.1, ceiling)
    assert ceiling_text(math.log(ceiling) - 0.1, ceiling) == ceiling_text(9.0, None) == ""
    assert attainable(product_task(), profile(launch(), gpu="RTX 3060"), timing(200.0)) is None


def test_traffic_is_told_over_the_tensors_own_bytes() -> None:
    task = product_task()
    outputs = sum(each.nbytes for each in task.full.tensors if each.role == "output")
    text = summary_text(task, profile(launch()), timing(200.0))
    assert f"writes {1e8 / outputs:.2f} times the output's." in text
    assert f"reads are {3e8 / (compulsory_bytes(task) - outputs):.2f} times the inputs'" in text
    assert "cold caches" not in text
    real = profile(launch(), launch()).model_copy(update={"provenance": Provenance.NCU})
    assert "profiled with cold caches" in summary_text(task, real, timing(200.0))
    bare = profile(launch(), launch(metrics={}))
    assert "own bytes" not in summary_text(task, bare, timing(200.0))


def test_a_change_names_the_launches_that_take_another_time() -> None:
    def measured(*launches: LaunchProfile) -> Evaluation:
        total = math.fsum(each.microseconds for each in launches)
        return Evaluation.model_construct(profile=profile(*launches), timing=timing(total))

    product = launch(kernel="product", microseconds=37.0, terms={})
    before = measured(product, launch(kernel="split", microseconds=17.0, terms={}))
    after = measured(product, launch(kernel="split", microseconds=9.0, terms={}))
    text = change_text(before, after)
    assert text.startswith("54 us -> 46 us")
    assert text.endswith("split 17 us -> 9 us") and "product" not in text
    joined = change_text(before, measured(launch(kernel="all", microseconds=40.0, terms={})))
    assert "all 40 us, new" in joined and "product 37 us, gone" in joined
    alone = measured(product)
    assert "product" not in change_text(alone, alone)


def test_a_figure_that_did_not_move_is_no_news() -> None:
    def measured(microseconds: float, **terms: float) -> Evaluation:
        seen = profile(launch(microseconds=microseconds, terms=terms))
        return Evaluation.model_construct(profile=seen, timing=timing(microseconds))

    before, after = measured(50.0, lsu=40.0, dram=30.0), measured(45.0, lsu=20.0, dram=30.0)
    assert change_text(before, after) == "50 us -> 45 us, lsu alone 40 us -> 20 us"
    assert change_text(before, before) == "50 us"


def test_of_many_launches_the_longest_are_described_and_the_others_named() -> None:
    launches = [launch(kernel=f"k{i}", microseconds=10.0 * (i + 1)) for i in range(5)]
    text = profile_text(profile(*launches))
    assert text.index("k4<<<") < text.index("k3<<<") < text.index("k2<<<")
    assert "k1<<<" not in text and "- k1: 13%, 20 us, 1 launch" in text


def test_a_program_of_hundreds_of_launches_is_told_of_by_kernel() -> None:
    lone = launch(kernel="lone", microseconds=100.0)
    steps = [launch(kernel=f"step{i % 40}", microseconds=8.0 + i % 40) for i in range(2000)]
    whole = profile(lone, *steps)
    assert whole.dominant.kernel == "step39"
    text = profile_text(whole)
    assert len(text) < 4000 and text.startswith("step39<<<")
    assert "All 2001 launches by kernel" in text
    assert "- step39: 4%, 2350 us, 50 launches of 47 us" in text
    assert "- 29 others:" in text
    assert [line for line, _ in hot_lines(profile(lone, *[launch()] * 400))] == [3]


def test_only_the_launches_that_matter_keep_all_of_their_metrics() -> None:
    always = {"gpu__time_duration.sum": 1.0, "gpc__cycles_elapsed.max": 1000.0}
    first = launch(microseconds=9.0, metrics={**always, "launch__grid_size": 7.0})
    again = first.model_copy(update={"like": 0})
    others = [launch(kernel=f"k{i}", metrics=first.metrics) for i in range(100)]
    whole = profile(first, *[again] * 100, *others)
    assert whole.elapsed_cycles == 201_000.0
    focused = whole.focused()
    assert focused.elapsed_cycles == whole.elapsed_cycles and len(focused.launches) == 201
    assert focused.dominant == first
    full = [each for each in focused.launches if "launch__grid_size" in each.metrics]
    assert len(full) == MOST_DETAILED and full[0] == first
    assert all(each.metrics == always for each in focused.launches if each not in full)


def test_a_real_report_of_nsight_compute_is_told_in_few_words() -> None:
    raw = (PAGES / "ncu_full_raw.csv").read_text()
    result = profile_from_pages(raw, (PAGES / "ncu_full_details.csv").read_text())
    assert result.profile is not None
    for each in result.profile.launches:
        text = profile_text(profile(each, gpu="H200"))
        assert f"{each.kernel}<<<" in text and "of peak: " in text and "of 4800" in text
        assert len(text) < 2600
    matmul = next(each for each in result.profile.launches if "mm_naive" in each.kernel)
    assert "sectors a request" in profile_text(profile(matmul, gpu="H200"))


def test_rates_of_operations_count_as_operations_where_ncu_gives_no_sums() -> None:
    name = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    rated = launch(metrics={name: 1000.0, "smsp__cycles_elapsed.avg": 1e6})
    assert "FP32 2 GFLOP at 10 TFLOPS" in profile_text(profile(rated))


def test_an_event_profile_without_counters_is_told_without_figures() -> None:
    bare = launch(metrics={"gpu__time_duration.sum": 2e5}, terms={}, lines=(), advice=())
    assert profile_text(profile(bare)) == "rows<<<32, 256>>>: 200 us, limited by lsu"


# Experience ------------------------------------------------------------------------------------


def step(technique: str, parent: str = "p", **changes: object) -> Step:
    values: dict[str, object] = {
        "run": "r", "iteration": 0, "rollout": 0, "step": 0, "state_id": "s",
        "technique": technique, "expected_log_gain": 0.0, "outcome": "passed", "log_gain": 0.5,
        "parent_sha256": parent, "microseconds_before": 2.0, "bottleneck_before": "lsu",
        "bottleneck_after": "dram", "author": "builtin",
    }  # fmt: skip
    return Step.model_validate({**values, **changes})


def test_what_was_tried_is_told_of_this_very_source_alone() -> None:
    text = tried_text(
        [
            step("fast_math", parent="other"),
            step("unroll_loop", parameters={"factor": 4}),
            step("remove_barriers", outcome="race", log_gain=None, reason="line 3: two warps"),
            step("tune_block_size", log_gain=-0.2, bottleneck_after="lsu"),
        ],
        "p",
    )
    assert text.split("\n") == [
        '- unroll_loop {"factor": 4}: 1.65x, limit lsu -> dram',
        "- remove_barriers: failed: race: line 3: two warps",
        "- tune_block_size: 0.819x (slower)",
    ]
    assert tried_text([step("a"), step("a")], "p").count("- a") == 1


def test_a_technique_is_told_with_when_when_not_side_effects_and_notes() -> None:
    known = knowledge_seed().techniques["vectorize_memory_access"]
    text = technique_text(known)
    for part in (known.description, known.applies_when, known.avoid_when, known.side_effects,
                 known.notes, "width [4, 2]"):  # fmt: skip
        assert part in text


def test_expectations_and_settings_say_what_they_rest_on() -> None:
    expected = ExpectedGain(mean_log=0.3, std_log=0.1, success_probability=0.75, passed=3,
                            failed=1, trials=4, score=0.2)  # fmt: skip
    assert expected_text(expected) == "expected 1.35x when it passes (75% of the time); 1.22x " \
        "to 1.49x by the 4 tries on the likest kernels"  # fmt: skip
    assert "never tried" in expected_text(expected.model_copy(update={"trials": 0.0}))
    card = knowledge_seed().techniques["shared_memory_tiling"]
    passes = Reliability(3.0, 1.0)
    forecasts = tuple(Forecast(mean, 0.1, 1.0, passes, 2.0) for mean in (0.5, 0.1))
    prospect = Prospect(card, expected, "rows", ({"tile": 32}, {"tile": 16}), forecasts)
    assert settings_text(prospect) == '- {"tile": 32}: expected 1.65x\n- {"tile": 16}: expected ' \
        '1.11x'  # fmt: skip
    untried = prospect._replace(forecasts=tuple(each._replace(tries=0.0) for each in forecasts))
    assert settings_text(untried) == ""


def lesson(text: str, **changes: object) -> Lesson:
    values: dict[str, object] = {"text": text, "kind": "correction", "device_kind": "simulated",
                                 "author": "builtin", "run": "r", "iteration": 0}  # fmt: skip
    return Lesson.model_validate({**values, **changes})


def test_lessons_are_those_that_bear_on_the_case() -> None:
    lessons = [
        lesson("of another technique", technique="fast_math"),
        lesson("of a measured device", technique="tile", device_kind="cuda"),
        lesson("of another class", technique="tile", op_class="softmax"),
        lesson("general", technique="tile"),
        lesson("of this state", technique="tile then pad", state="here", op_class="matmul"),
        lesson("doubtful", technique="tile", state="here", op_class="matmul", contested=True),
        lesson("as expected", technique="tile", kind="observation"),
        lesson("seen by a model", technique="tile", kind="observation", author="openai:m"),
    ]
    text = lessons_text(
        lessons, state="here", op_class="matmul", device_kind="simulated", techniques=("tile",)
    )
    assert text.split("\n") == [
        "- correction: of this state",
        "- correction: general",
        "- observation: seen by a model",
    ], "the contested one is left out first"


# Failures --------------------------------------------------------------------------------------


def test_a_failure_is_told_with_its_meaning_and_the_lines_it_is_about() -> None:
    source = initial(norm_task())
    found = (
        Diagnostic(kind="race", message="two warps write shared byte 4", kernel="_Z4rowsPf",
                   line=2, count=7),
        Diagnostic(kind="race", message="two warps write shared byte 8", kernel="_Z4rowsPf",
                   line=2, count=7),
    )  # fmt: skip
    text = failure_text(Outcome.RACE, "race", found, source)
    assert text.startswith(MEANING[Outcome.RACE])
    assert text.count("two warps") == 1 and "(14 times)" in text
    assert "kernel rows, line 2" in text
    assert f"   2>{source.splitlines()[1]}".rstrip() in text


def test_a_wrong_answer_says_what_its_inputs_hold() -> None:
    message = "out0[3]: expected 1, got 2; 1 of 9 elements differ (case seed3-large)"
    found = (Diagnostic(kind="mismatch", message=message),)
    text = failure_text(Outcome.WRONG_ANSWER, message, found, "x\n")
    assert "normal times up to 128" in text and "expected 1, got 2" in text


def test_many_findings_are_counted_and_a_failure_without_any_gives_its_reason() -> None:
    found = [Diagnostic(kind="compile_error", message=f"e{i}", line=i + 1) for i in range(9)]
    text = failure_text(Outcome.COMPILE_ERROR, "", found, "int x;\n" * 9)
    assert "and 3 more" in text and "e5" in text and "e6" not in text
    assert failure_text(Outcome.TIMED_OUT, "60 s", (), "").endswith("- 60 s")


def test_every_outcome_that_can_be_mended_has_its_meaning() -> None:
    verdicts = {outcome for outcome in Outcome if outcome.is_verdict and outcome.has_candidate}
    assert set(MEANING) == verdicts - {Outcome.PASSED}


