"""The bound counts what must be moved and done, by hand-computed cases, and never more."""

from __future__ import annotations

from typing import Any

import pytest

from kernelblaster.harness.bound.flow import Flow
from kernelblaster.harness.bound.needs import Needs
from kernelblaster.harness.bound.speed_of_light import SpeedOfLight, score, speed_of_light
from kernelblaster.harness.gpus import find_gpu, known_gpu
from kernelblaster.harness.records.programs import Program, ProgramNode
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance

H200 = find_gpu("H200")
Shape = tuple[int, ...]


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


def node(name: str, op: str, shape: Shape, *args: Any, dtype: str = "float32") -> ProgramNode:
    """A word is a value; ATen's operators have a namespace and an overload."""
    given = tuple(ref(each) if isinstance(each, str) else each for each in args)
    full = op if op == "getitem" else f"aten.{op}.default"
    return ProgramNode(name=name, op=full, args=given, shape=shape, dtype=dtype)


def task(given: dict[str, Shape], nodes: list[ProgramNode], dtype: str = "float32") -> Task:
    """Upper-case inputs are parameters."""
    last = nodes[-1]
    tensors = [TensorSpec(name="out0", shape=last.shape or (), dtype=dtype, role="output")]
    for name, shape in given.items():
        role = "parameter" if name.isupper() else "input"
        tensors.append(TensorSpec(name=name, shape=shape, dtype=dtype, role=role))
    variant = TaskVariant(name="full", dimensions={}, tensors=tuple(tensors))
    return Task(
        name="t", path="t.py", reference_sha256="0" * 64, source="", op_class="mixed",
        dtype=dtype, tolerance=Tolerance(absolute=1e-4, relative=1e-4), full=variant,
        verify=variant.model_copy(update={"name": "verify"}),
        program=Program(nodes=tuple(nodes), outputs=(last.name,)),
    )  # fmt: skip


def bound(given: dict[str, Shape], *nodes: ProgramNode, dtype: str = "float32") -> SpeedOfLight:
    return speed_of_light(task(given, list(nodes), dtype), H200)


def products(found: SpeedOfLight) -> int:
    return sum(count for kind, count in found.operations.items() if kind != "element")


def test_an_elementwise_task_moves_its_bytes() -> None:
    found = bound({"x": (1 << 20,)}, node("y", "relu", (1 << 20,), "x"))
    assert (found.bytes_read, found.bytes_written) == (4 << 20, 4 << 20)
    assert found.microseconds == pytest.approx((8 << 20) / 4560e3)
    assert (found.binds, products(found)) == ("memory", 0)


def test_a_product_is_bound_by_three_half_products_in_fp32_and_by_one_in_half() -> None:
    shapes = {"a": (4096, 4096), "b": (4096, 4096)}
    product = node("y", "matmul", (4096, 4096), "a", "b")
    found = bound(shapes, product)
    peak = 2 * 132 * 1.98e3 * 2048
    assert products(found) == 2 * 4096**3
    assert found.fp32_us == pytest.approx(3 * 2 * 4096**3 / peak)
    assert found.tensor_us == pytest.approx(2 * 4096**3 / peak)
    half = bound(shapes, product.model_copy(update={"dtype": "float16"}), dtype="float16")
    assert half.fp32_us == pytest.approx(found.tensor_us)


def test_what_was_half_before_it_was_made_longer_is_multiplied_as_half() -> None:
    given = {"a": (64, 64), "b": (64, 64)}
    longer = [node(f"{name}_", "to", (64, 64), name) for name in given]
    product = node("y", "matmul", (64, 64), "a_", "b_")
    found = bound(given, *longer, product, dtype="float16")
    assert found.fp32_us == pytest.approx(found.tensor_us)


def test_no_bound_is_above_fp32_multiply_adds() -> None:
    """A GPU whose tensor cores are slow is not held to them."""
    for name in ("H200", "A6000"):
        found = speed_of_light(
            task({"a": (64, 64), "b": (64, 64)}, [node("y", "mm", (64, 64), "a", "b")]),
            find_gpu(name),
        )
        gpu = find_gpu(name)
        fma = 2 * gpu.sms * gpu.clock_ghz * 1e3 * gpu.throughput.fp32
        assert found.fp32_us <= 2 * 64**3 / fma


@pytest.mark.parametrize("op", ["tril", "triu"])
def test_a_triangle_of_a_product_is_counted_as_one(op: str) -> None:
    given = {"a": (64, 32), "b": (32, 64)}
    found = bound(given, node("p", "matmul", (64, 64), "a", "b"), node("y", op, (64, 64), "p"))
    assert products(found) == 2 * 32 * (64 * 65 // 2)
    assert found.bytes_read == 4 * 2 * 64 * 32  # All rows and columns have a part in it.


def test_a_triangular_factor_is_counted_as_one() -> None:
    found = bound(
        {"a": (64, 64), "b": (64, 32)},
        node("t", "tril", (64, 64), "a"), node("y", "matmul", (64, 32), "t", "b"),
    )  # fmt: skip
    assert found.operations["matrix product"] - found.spared == 2 * 32 * (64 * 65 // 2)
    assert found.bytes_read == 4 * (64 * 65 // 2 + 64 * 32)


def test_what_no_output_depends_on_is_not_counted() -> None:
    found = bound(
        {"x": (8, 64), "unread": (999,), "w": (64, 64)},
        node("dead", "matmul", (8, 64), "x", "w"),
        node("y", "relu", (8, 64), "x"),
    )
    assert (found.bytes_read, products(found)) == (4 * 8 * 64, 0)


def test_a_row_that_is_taken_needs_its_row_alone() -> None:
    found = bound(
        {"x": (128, 64, 32), "W": (16, 32)},
        node("h", "linear", (128, 64, 16), "x", "W"),
        node("y", "select", (128, 16), "h", 1, -1),
    )
    assert products(found) == 2 * 128 * 32 * 16
    assert found.bytes_read == 4 * (128 * 32 + 16 * 32)


def test_parts_that_are_the_whole_need_all_of_it() -> None:
    halves = [
        node("p", "split", (32, 64), "h", 32, 0), node("a", "getitem", (32, 64), "p", 0),
        node("b", "getitem", (32, 64), "p", 1), node("y", "mul", (32, 64), "a", "b"),
    ]  # fmt: skip
    found = bound({"x": (64, 16), "W": (64, 16)}, node("h", "linear", (64, 64), "x", "W"), *halves)
    assert products(found) == 2 * 64 * 64 * 16
    one = bound(
        {"x": (64, 16), "W": (64, 16)}, node("h", "linear", (64, 64), "x", "W"),
        *halves[:2], node("y", "relu", (32, 64), "a"),
    )  # fmt: skip
    assert products(one) == 2 * 32 * 64 * 16


def test_every_second_place_and_the_others_are_the_whole() -> None:
    taken = [
        node("a", "slice", (8, 4), "r", 1, 0, 99, 2), node("b", "slice", (8, 4), "r", 1, 1, 99, 2),
    ]  # fmt: skip
    found = bound({"x": (8, 8)}, node("r", "relu", (8, 8), "x"), *taken,
                  node("y", "mul", (8, 4), "a", "b"))  # fmt: skip
    assert found.bytes_read == 4 * 64


def test_a_table_is_not_read_whole_and_the_words_say_so() -> None:
    found = bound(
        {"WEIGHT": (50_000, 64), "ids": (32,)},
        node("y", "embedding", (32, 64), "WEIGHT", "ids"),
    )
    assert found.bytes_read == 4 * (1 + 32)
    assert any("indices" in line for line in found.unknown)


def test_constants_are_not_read() -> None:
    made = task({"x": (64,), "c": (64,)}, [node("y", "add", (64,), "x", "c")])
    tensors = tuple(
        each.model_copy(update={"role": "buffer", "constant": True}) if each.name == "c" else each
        for each in made.full.tensors
    )
    full = made.full.model_copy(update={"tensors": tensors})
    assert speed_of_light(made.model_copy(update={"full": full}), H200).bytes_read == 4 * 64


def convolution(x: Shape, w: Shape, y: Shape, *options: Any, op: str = "conv2d") -> SpeedOfLight:
    return bound({"x": x, "W": w}, node("y", op, y, "x", "W", None, *options))


def test_a_convolutions_taps_on_padding_are_not_counted() -> None:
    whole = convolution((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), [1, 1], [0, 0])
    assert whole.operations["convolution"] == 2 * 2 * 4 * 6 * 6 * 3 * 9
    padded = convolution((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 8, 8), [1, 1], [1, 1])
    assert padded.operations["convolution"] == 2 * 2 * 4 * 3 * (3 * 8 - 2) ** 2


def test_a_sliding_window_can_be_had_for_one_product_a_position() -> None:
    found = convolution((1, 1, 1, 100), (1, 1, 1, 3), (1, 1, 1, 98), [1, 1], [0, 0])
    assert found.operations["convolution"] - found.spared == 2 * 98
    # Of stride 3 it is a product of matrices: each element meets one tap.
    apart = convolution((1, 1, 1, 99), (1, 1, 1, 3), (1, 1, 1, 33), [1, 3], [0, 0])
    assert apart.spared == 0


def test_a_window_that_jumps_does_not_read_what_lies_between() -> None:
    found = convolution((1, 2, 64, 64), (4, 2, 1, 1), (1, 4, 32, 32), [2, 2], [0, 0])
    assert found.bytes_read == 4 * (2 * 32 * 32 + 4 * 2)


def test_a_transposed_convolution_and_groups() -> None:
    found = convolution(
        (2, 6, 5), (6, 2, 4), (2, 4, 12), [2], [0], [0], 2, op="conv_transpose1d"
    )  # Stride 2: every input element meets 4 taps.
    assert found.operations["convolution"] == 2 * 2 * 6 * 2 * 5 * 4
    depthwise = convolution((2, 6, 9), (6, 1, 3), (2, 6, 7), [1], [0], [1], 6, op="conv1d")
    assert depthwise.operations["convolution"] == 2 * 2 * 6 * 7 * 3


def test_a_sum_changes_places_with_a_product() -> None:
    given = {"x": (64, 32), "W": (128, 32)}
    linear = node("h", "linear", (64, 128), "x", "W")
    halved = node("d", "div", (64, 128), "h", 2.0)
    summed = bound(given, linear, halved, node("y", "sum", (64, 1), "d", [1], True))
    assert summed.operations["matrix product"] - summed.spared == 2 * 64 * 32
    bent = bound(given, linear, node("r", "relu", (64, 128), "h"),
                 node("y", "sum", (64, 1), "r", [1], True))  # fmt: skip
    assert bent.spared == 0


def test_causal_attention_is_half_of_it() -> None:
    shape = (2, 4, 16, 8)
    given = dict.fromkeys("qkv", shape)
    op = "scaled_dot_product_attention"
    full = bound(given, node("y", op, shape, "q", "k", "v"))
    assert full.operations["attention"] == 2 * 2 * 4 * 16 * 16 * (8 + 8)
    causal = bound(given, node("y", op, shape, "q", "k", "v", None, 0.0, True))
    assert causal.operations["attention"] == 2 * 2 * 4 * (16 * 17 // 2) * (8 + 8)


def test_an_einsum_of_three_takes_the_cheapest_order() -> None:
    given = {"a": (4, 100), "b": (100, 3), "c": (3, 5)}
    args = ("ij,jk,kl->il", [ref(name) for name in given])
    found = bound(given, node("y", "einsum", (4, 5)).model_copy(update={"args": args}))
    assert products(found) == 2 * (4 * 100 * 3 + 4 * 3 * 5)


def test_the_last_step_of_both_ways_spares_the_way_back() -> None:
    """Of the last layer's way back the last answer needs one step."""
    given = {"x": (2, 10, 8), "h": (2, 2, 4)}
    weights = {"A": (12, 8), "B": (12, 4), "C": (12, 8), "D": (12, 4)}
    gru = ProgramNode(
        name="g", op="aten.gru.input", shape=(2, 10, 8), dtype="float32",
        args=(ref("x"), ref("h"), [ref(n) for n in weights], False, 1, 0.0, False, True, True),
    )  # fmt: skip
    each = 2 * 2 * 12 * (8 + 4)  # A step, one way.
    answers = node("o", "getitem", (2, 10, 8), "g", 0)
    whole = bound(given | weights, gru, answers, node("y", "relu", (2, 10, 8), "o"))
    assert (products(whole), whole.spared) == (20 * each, 0)
    last = bound(given | weights, gru, answers, node("y", "select", (2, 8), "o", 1, -1))
    assert products(last) - last.spared == 11 * each


def test_a_softmax_of_one_needs_nothing() -> None:
    found = bound(
        {"x": (64, 32), "W": (1, 32)},
        node("h", "linear", (64, 1), "x", "W"), node("y", "softmax", (64, 1), "h", 1),
    )  # fmt: skip
    assert (found.bytes_read, products(found)) == (0, 0)


def test_what_is_written_in_place_stands_for_what_was_there() -> None:
    nodes = [
        node("z", "zeros_like", (8, 8), "x"), node("s", "select", (8,), "z", 0, 0),
        node("c", "copy_", (8,), "s", "v"), node("y", "relu", (8, 8), "z"),
    ]  # fmt: skip
    made = task({"x": (8, 8), "v": (8,)}, nodes)
    assert made.program is not None
    flow = Flow(made.program, made.full.tensors)
    assert flow.by_name["y"].values == ("z after c",)
    assert Needs(flow).count("x") == 0  # Zeros are like it in shape alone.


def test_without_a_program_the_outputs_alone_are_counted() -> None:
    made = task({"x": (64, 64)}, [node("y", "relu", (64, 64), "x")])
    found = speed_of_light(made.model_copy(update={"program": None}), H200)
    assert (found.bytes_read, found.bytes_written, found.known) == (0, 4 * 64 * 64, False)
    assert "outputs alone" in str(found)


def test_a_program_in_a_form_that_nobody_foresaw_costs_the_bound_alone() -> None:
    odd = node("y", "conv2d", (4, 4), "x")
    found = bound({"x": (4, 4)}, odd)
    assert (found.known, found.bytes_written) == (False, 4 * 16)
    assert "cannot be counted" in found.unknown[0]


def test_of_many_unknown_things_a_few_are_named() -> None:
    nodes = [node("v0", "relu", (4, 4), "x")]
    for k in range(20):
        nodes.append(node(f"v{k + 1}", "masked_fill", (4, 4), f"v{k}", "m", 0.0))
    found = bound({"x": (4, 4), "m": (4, 4)}, *nodes)
    assert (len(found.unknown), found.unknown[-1]) == (9, "and 12 more")


@pytest.mark.parametrize(
    ("time", "base", "expected"),
    [(10.0, 10.0, 0.5), (2.0, 10.0, 1.0), (1.0, 10.0, 1.0), (18.0, 10.0, 1 / 3), (5.0, 2.0, None),
     (5.0, 1.0, None)],
)  # fmt: skip
def test_the_score(time: float, base: float, expected: float | None) -> None:
    """The bound is 2 us; a time below it has 1, and a base at it leaves nothing to win."""
    assert score(time, 2.0, base) == (expected if expected is None else pytest.approx(expected))


def test_a_drivers_name_is_of_a_gpu_that_we_know() -> None:
    assert known_gpu("NVIDIA H100 80GB HBM3") is find_gpu("H100")
    assert known_gpu("NVIDIA GH200 480GB") is None
