"""What varies from case to case: every value, as far as forward() survives it, and what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from small_references import X, cases, reference

from kernelblaster.harness.records.variations import Level, Variation
from kernelblaster.harness.reference.cases import exploration, proof
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.cases.constants import changed_constants, with_another
from kernelblaster.harness.reference.cases.distributions import (
    Usual,
    scale_of,
    seed_of,
    timed_proof,
)
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.cases.proof import Proof
from kernelblaster.harness.reference.drawing.draws import LADDERS, Draw, draw, redrawn
from kernelblaster.harness.reference.drawing.structure import has_structure
from kernelblaster.harness.reference.loading.model import Reference, ReferenceFault
from kernelblaster.harness.reference.precision.tolerances import root_mean_square
from kernelblaster.harness.task.rules import CASES, LARGEST_SHARE


def seen(made: Reference, name: str) -> tuple[Variation, list[torch.Tensor]]:
    """Return what varies, and a tensor in every case."""
    variation = explore(made)
    return variation, [case.tensors[name] for case in cases(made, variation)]


def level(made: Reference, name: str = "x") -> str:
    return explore(made).levels[name]


# ---- what may vary ----


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        ("x * 2", X, "any"),
        ("torch.log(x)", "torch.rand(N) + 0.1", "positive"),
        ("F.binary_cross_entropy(x, x.detach())", "torch.rand(N)", "range"),
        ("torch.exp(x * 40)", "torch.rand(N)", "range"),
        ("x * 3 + 1", "torch.randint(0, 100, (N,))", "any"),
        ("torch.arange(100.0)[x]", "torch.randint(0, 100, (N,))", "below"),
        ("torch.arange(100.0)[x - 90]", "torch.randint(90, 100, (N,))", "below"),
        ("torch.log(x.float() - 89)", "torch.randint(90, 100, (N,))", "range"),
        ("torch.arange(64.0)[~x]", "torch.arange(N) % 3 == 0", "order"),
        ("torch.bincount(x, minlength=100)[:100]", "torch.randint(0, 100, (N,))", "below"),
    ],
)
def test_each_input_is_as_free_as_forward_survives(body: str, inputs: str, expected: str) -> None:
    assert level(reference(body, inputs)) == expected


@pytest.mark.parametrize(
    "body", ["sum(1.0 * x for _ in range(int(x.max())))", "torch.zeros(int(x.max()))[:5] + x[:5]"]
)
def test_a_size_taken_from_an_input_ends_a_trial_and_nothing_else(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration, "TRIAL_SECONDS", 1)
    made = reference(body, "torch.randint(5, 50, (N,))")
    assert level(made) in ("below", "range")


def test_all_eight_bytes_of_an_integer_vary() -> None:
    _, tensors = seen(reference("x * 3", "torch.randint(0, 100, (N,))"), "x")
    places = torch.stack([each.view(torch.uint8).reshape(64, 8) for each in tensors])
    assert all(len(places[:, :, byte].unique()) > 50 for byte in range(8))
    # And numbers as the task's own are among them, where equality and order mean something.
    assert sum(bool((0 <= each).all() and (each < 100).all()) for each in tensors) >= 4


def test_one_case_of_integers_is_half_the_tasks_own_and_one_all_others() -> None:
    _, tensors = seen(reference("x * 3", "torch.randint(0, 100, (N, 64))"), "x")
    own = {
        name: float(((each >= 0) & (each < 100)).float().mean())
        for each, (_, name, _) in zip(tensors, CASES, strict=True)
    }
    assert own["large"] == 0 and 0.4 < own["offset"] < 0.6
    assert all(share == 1 for name, share in own.items() if name not in ("large", "offset"))


def test_parameters_are_as_free_as_they_can_be_where_an_input_is_not() -> None:
    made = reference("torch.log(x) * self.w", "torch.rand(N, 40) + 0.1",
                     init="self.w = nn.Parameter(torch.ones(40))")  # fmt: skip
    assert explore(made).levels == {"x": "positive", "w": "any"}


def test_what_stays_in_its_range_stays_between_its_own_ends_or_lies_at_forwards() -> None:
    made = reference("torch.log(x - 2.5) + torch.sqrt(4.5 - x)", "torch.rand(N, 40) + 3")
    assert level(made) == "range"
    for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True):
        x = case.tensors["x"]
        at_the_end = x == 4.5
        assert bool((((x >= 3) & (x <= 4)) | at_the_end).all())
        assert (0.015 < float(at_the_end.float().mean()) < 0.05) is (name == "zeros")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_keeps_its_own_values_at_full_dimensions_has_few_ends_among_them(
    dtype: torch.dtype,
) -> None:
    made = reference("torch.acos(x)", f"(torch.rand(N, 400) * 1.8 - 0.9).to({dtype})")
    own, x = (
        draw(made, Draw(11, how), explore(made)).inputs["x"] for how in ("normal", "full")
    )
    for end in (-1.0, 1.0):
        assert abs(float((x == end).float().mean()) - 2.0**-6) < 1e-3
    assert torch.equal(own[x.abs() < 1], x[x.abs() < 1])


def test_integers_that_forward_names_are_in_one_case_and_at_full_dimensions() -> None:
    made = reference(
        "F.cross_entropy(x, y)", "torch.randn(N, 40, 64), torch.randint(0, 40, (N, 64))", "x, y"
    )
    variation = explore(made)
    held = [(each.tensors["y"] == -100).float().mean() for each in cases(made, variation)]
    full = (draw(made, Draw(11, "full"), variation).inputs["y"] == -100).float().mean()
    assert abs(float(held[5]) - 0.125) < 0.03 and abs(float(full) - 2.0**-5) < 0.01
    assert not any(held[:5]) and not held[6]


FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
LEVELS: dict[torch.dtype, tuple[Level, ...]] = {
    **dict.fromkeys(FLOATING, LADDERS["float"]), **dict.fromkeys(WHOLE, LADDERS["integer"]),
    torch.bool: LADDERS["boolean"],
}  # fmt: skip


@pytest.mark.parametrize("lines", ["any", "unlike", "drawn"])
@pytest.mark.parametrize("distribution", [*dict.fromkeys(name for _, name, _ in CASES), "full"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (40,), (9, 40), (0,)])
def test_every_tensor_is_drawn_at_every_level(
    shape: tuple[int, ...], distribution: str, lines: Literal["any", "unlike", "drawn"]
) -> None:
    for dtype, levels in LEVELS.items():
        if shape == (0,) and dtype in WHOLE:
            continue
        own = torch.rand(shape).mul(9).add(1).to(dtype)
        for each in levels:
            variation = Variation(levels={"x": each}, borders=((2.0, 1), (0.5, 1)))
            for apart in (False, True):
                drawn = redrawn(own, Draw(1, distribution, lines=lines), variation, "x",
                                torch.Generator().manual_seed(1), apart=apart)  # fmt: skip
                assert drawn.shape == own.shape and drawn.dtype is own.dtype


def test_a_number_that_is_given_as_a_tensor_varies() -> None:
    made = reference("x * k", f"{X}, torch.randint(1, 9, ())", "x, k")
    variation, tensors = seen(made, "k")
    assert variation.levels["k"] != "own" and len({int(each) for each in tensors}) > 2


def test_what_is_timed_of_a_positive_input_is_positive() -> None:
    made = reference("torch.log(x)", "torch.rand(N, 40) + 0.1")
    variation = explore(made)
    for seed in range(4):
        assert bool((draw(made, Draw(seed, "timed"), variation).inputs["x"] >= 0).all())


def test_an_input_of_another_shape_each_time_is_not_fixed() -> None:
    made = reference("x.sum(1)", "torch.ones(N, int(torch.randint(2, 9, ())) + N)")
    assert explore(made).fixed == ()


def test_a_mask_that_is_the_same_each_time_varies() -> None:
    inputs = f"{X}, torch.ones(N, 40).tril().bool()"
    made = reference("x.masked_fill(~keep, 0.0)", inputs, "x, keep")
    variation, tensors = seen(made, "keep")
    assert variation.fixed == ("keep",) and variation.not_varied == ()
    assert len({each.numpy().tobytes() for each in tensors}) >= 5
    assert all(each.dtype is torch.bool for each in tensors)


@pytest.mark.parametrize(
    "init",
    ["self.w = nn.Parameter(torch.linspace(0, 1, 40))", "self.w = nn.Parameter(torch.zeros(40))",
     "self.w = nn.Parameter(torch.ones(40).half())",
     "torch.manual_seed(3); self.w = nn.Parameter(torch.randn(40))"],
)  # fmt: skip
def test_a_parameter_that_the_seed_does_not_choose_varies_in_every_case(init: str) -> None:
    variation, tensors = seen(reference("x * self.w", init=init), "w")
    assert "w" in variation.fixed and variation.not_varied == ()
    assert len({each.numpy().tobytes() for each in tensors}) == len(CASES)


def test_a_row_of_zeros_in_an_embedding_varies() -> None:
    init = "self.rows = nn.Embedding(50, 8, padding_idx=0)"
    _, tensors = seen(
        reference("self.rows(x)", "torch.randint(0, 50, (N,))", init=init), "rows_weight"
    )
    assert all(bool((each[0] != 0).any()) for each in tensors)


def test_what_cannot_vary_is_named() -> None:
    body = "x + (torch.ones(3) if bool((steps == torch.arange(4)).all()) else missing)[0]"
    variation = explore(reference(body, f"{X}, torch.arange(4)", "x, steps"))
    assert variation.not_varied == ("steps",) and variation.levels["x"] == "any"


@pytest.mark.parametrize(
    ("inputs", "keeps"),
    [
        ("torch.tensor([0, 9, 20, 64])", lambda t: bool((t[1:] >= t[:-1]).all())
         and (int(t[0]), int(t[-1])) == (0, 64)),
        ("torch.randperm(N)", lambda t: torch.equal(t.sort().values, torch.arange(64))),
        ("torch.arange(N)", lambda t: torch.equal(t.sort().values, torch.arange(64))),
    ],
)  # fmt: skip
def test_the_structure_of_integers_is_kept(
    inputs: str, keeps: Callable[[torch.Tensor], bool]
) -> None:
    made = reference("torch.arange(65.0)[x]", inputs)
    _, tensors = seen(made, "x")
    kept = [each for each in tensors if len(each.unique()) > 1]
    assert len(kept) >= 5 and all(map(keeps, kept))
    assert len({each.numpy().tobytes() for each in kept}) >= 4


def test_zeros_that_are_the_same_each_time_do_not_stay() -> None:
    made = reference("x * m", f"{X}, (torch.arange(40) % 2).float()", "x, m")
    _, tensors = seen(made, "m")
    assert any(bool((each[::2] != 0).any()) for each in tensors)
    triangle = reference("x @ m", "torch.randn(N, N), torch.randn(N, N).tril()", "x, m")
    assert all(bool((each.triu(1) == 0).all()) for each in seen(triangle, "m")[1])


def test_buffers_that_the_seed_does_not_choose_are_constants() -> None:
    init = "self.register_buffer('c', torch.arange(40.0))\n        "
    init += "self.register_buffer('r', torch.randn(40))"
    made = reference("x + self.c + self.r", init=init)
    variation, tensors = seen(made, "c")
    assert variation.constants == ("c",)
    assert all(torch.equal(each, torch.arange(40.0)) for each in tensors)
    assert len({each.numpy().tobytes() for each in seen(made, "r")[1]}) == len(CASES)


def test_what_is_timed_varies_too_and_constants_do_not() -> None:
    init = "self.register_buffer('c', torch.arange(40.0))"
    made = reference("(x + self.c) * m", "torch.linspace(0, 1, 40), torch.ones(N, 40).bool()",
                     "x, m", init)  # fmt: skip
    variation = explore(made)
    one, other = (draw(made, Draw(seed, "timed"), variation) for seed in (1, 2))
    assert not torch.equal(one.inputs["x"], other.inputs["x"])
    assert torch.equal(one.buffers["c"], other.buffers["c"])
    own = torch.linspace(0, 1, 40)
    others = ~torch.isin(one.inputs["x"], own)  # It stays in order, as all that is searched in.
    assert int(others.sum()) <= 40 // 16 + 1, "get_inputs()'s own, but for a span"


def test_a_secret_gives_other_seeds_the_same_each_time() -> None:
    numbers = range(len(CASES))
    assert [seed_of(number, 0) for number in numbers] == list(numbers)
    drawn = [[seed_of(number, secret) for number in numbers] for secret in (5, 5, 6)]
    assert drawn[0] == drawn[1] and not set(drawn[0]) & set(drawn[2])


# ---- what the cases tell ----


def proof_of(made: Reference) -> tuple[str, list[str]]:
    variation, proof = explore(made), Proof()
    found = cases(made, variation)
    for case, (_, name, _) in zip(found, CASES, strict=True):
        proof.add(case, case.tolerances(scale_of(name)))
    usual = Usual(False, found[0].finite, [(o.shape, o.dtype) for o in found[0].outputs])
    timed, _ = timed_proof(made, variation, usual)
    return proof.degenerate() or timed, proof.weak_to()


TWO = f"{X}, {X}"


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("F.mse_loss(x, y)", TWO),
        ("torch.mean(torch.clamp(1 - x * y, min=0))",
         "torch.rand(N, 40), torch.randint(0, 2, (N, 1)).float() * 2 - 1"),
        ("F.kl_div(torch.log(x), y, reduction='batchmean')",
         "torch.rand(N, 40).softmax(-1), torch.rand(N, 40).softmax(-1)"),
        ("torch.mean(1 - F.cosine_similarity(x, y, dim=1))", TWO),
        ("F.smooth_l1_loss(x, y)", TWO),
        ("F.triplet_margin_loss(x, y, x * y)", TWO),
        ("F.cross_entropy(x, y)", f"{X}, torch.randint(0, 40, (N,))"),
    ],
)  # fmt: skip
def test_losses_of_one_number_are_tasks(body: str, inputs: str) -> None:
    assert proof_of(reference(body, inputs, "x, y")) == ("", [])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x * 0", "zeros"),
        ("x * 0 / 0", "not numbers"),
        ("x.clone()", "input x unchanged"),
        ("x * 0 + 3", "constant 3"),
        ("x * 0 + torch.arange(40.0)", "answer to another input"),
        ("torch.where(x > 1e30, x, torch.nan)", "not numbers"),
        ("torch.relu(x - 1e4)", "zeros"),
        ("x > 1e30", "zeros"),
    ],
)
def test_a_task_whose_answer_takes_no_computing_is_degenerate(body: str, words: str) -> None:
    assert words in proof_of(reference(body))[0]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("(x * 2, torch.zeros_like(x))", "zeros in out1"),
        ("torch.cat((x[:4] * 0, x[4:] * 2))", "zeros in the first sixteenth of out0"),
        ("torch.cat((x[:-4] * 2, x[-4:] * 0))", "zeros in the last sixteenth of out0"),
    ],
)
def test_what_some_outputs_accept_is_told(body: str, told: str) -> None:
    assert proof_of(reference(body)) == ("", [told])


# ---- tolerances ----


@pytest.mark.parametrize(
    "body",
    ["x @ x.T", "torch.softmax(x @ x.T, 1)", "torch.round(x @ x.T * 1e3)", "(x @ x.T).half()",
     "torch.tanh(x).bfloat16()", "x - x.mean(1, keepdim=True)", "(x @ x.T).half().float()",
     "torch.floor(x * 1e7)", "(x.half() @ x.T.half())", "x.sum() - x.double().sum().float()",
     "torch.var(x, 1)", "torch.sin(x * 1e6)"],
)  # fmt: skip
def test_no_tolerance_is_more_than_a_share_of_the_answer(body: str) -> None:
    made = reference(body)
    for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True):
        for answer, tolerance in zip(case.outputs, case.tolerances(scale_of(name)), strict=True):
            square = root_mean_square(answer)
            if tolerance is not None and square > 0:
                assert tolerance.absolute <= LARGEST_SHARE * square + 1e-6


def test_an_output_that_pytorch_does_not_meet_itself_is_not_compared() -> None:
    made = reference("torch.sin(x * 1e20)")
    assert {case.tolerances("down")[0] for case in cases(made, explore(made))[:3]} == {None}


@pytest.mark.parametrize(("cast", "unit"), [("half", 2**-10), ("bfloat16", 2**-7)])
def test_a_cast_output_is_judged_by_what_comes_before_the_cast(cast: str, unit: float) -> None:
    made = reference(f"torch.tanh(x).{cast}()")
    for case in cases(made, explore(made)):
        (tolerance,) = case.tolerances("down")
        assert tolerance is not None and tolerance.relative == pytest.approx(1e-4 + unit)
        assert tolerance.absolute <= 1.1e-4
    given = reference("torch.tanh(x)", f"{X}.{cast}()")
    (tolerance,) = cases(given, explore(given))[0].tolerances("down")
    assert tolerance is not None and tolerance.relative == 1e-2


def test_a_changed_constant_is_one_that_changes_the_answer() -> None:
    init = "; ".join(
        f"self.register_buffer('{name}', torch.arange(40.0))" for name in ("used", "idle")
    )
    made = reference("x + self.used + 0 * self.idle", init=init)
    variation = explore(made)
    assert sorted(variation.constants) == ["idle", "used"]
    found = list(changed_constants(made, variation, lambda case: True))
    assert [name for name, _, _ in found] == ["used"]
    assert not list(changed_constants(made, variation, lambda case: False))
    nothing = reference("torch.where(x > 0, torch.nan, x) + 0 * self.idle", init=init)
    assert not list(changed_constants(nothing, explore(nothing), lambda case: True))
    (_, level, case) = found[0]
    again = with_another(made, variation, "used", level)
    assert torch.equal(case.instance.buffers["used"], again.buffers["used"])
    assert not torch.equal(again.buffers["used"], torch.arange(40.0))
    assert torch.equal(again.buffers["idle"], torch.arange(40.0))


def test_a_constant_that_cannot_be_another_is_not_changed() -> None:
    init = "self.register_buffer('c', torch.arange(40.0))"
    made = reference("x + (1 if torch.equal(self.c, torch.arange(40.0)) else missing)", init=init)
    assert not list(changed_constants(made, explore(made), lambda case: True))


def in_double(body: str) -> torch.Tensor | None:
    made = reference(body)
    return Case(made, draw(made, Draw(5, "gaussian"), Variation(levels={"x": "any"}))).exact[0]


def test_a_model_that_insists_on_its_type_has_no_exact_answer() -> None:
    assert in_double("x if x.dtype is torch.float32 else missing") is None
    assert in_double("x if x.dtype is torch.float32 else x[1:]") is None
    with pytest.raises(ReferenceFault, match="in double precision: .*out of memory"):
        in_double("x if x.dtype is torch.float32 else (_ for _ in ()).throw(MemoryError('out of "
                  "memory'))")  # fmt: skip


@pytest.mark.parametrize("body", ["x.view(size=(40, 64)) * 3", "x.view(40, 64).clone() * 3"])
def test_other_shapes_of_a_tensor_are_exact_too(body: str) -> None:
    exact = in_double(body)
    assert exact is not None and exact.shape == (40, 64) and exact.dtype is torch.float64


def test_what_is_looked_at_of_a_large_output_is_spread_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proof, "SAMPLE", 100)
    found = proof._sample(torch.arange(1000.0).reshape(10, 100))
    assert found.numel() == 100 and (found[0], found[-1]) == (0, 999)
    assert bool((found.diff() >= 10).all()) and bool((found.diff() <= 11).all())
    assert torch.equal(proof._sample(torch.arange(100.0)), torch.arange(100.0))


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "to(torch.float16).to"])
def test_in_double_precision_no_cast_rounds(cast: str) -> None:
    body = f"x.{cast}(torch.float32) * 3" if cast.endswith("to") else f"x.{cast}().float() * 3"
    made = reference(body)
    case = Case(made, draw(made, Draw(5, "gaussian"), explore(made)))
    (exact,) = case.exact
    assert exact is not None and exact.dtype is torch.float64
    assert torch.equal(exact, case.tensors["x"].double() * 3)


def test_numbers_in_order_stay_in_order_whatever_is_drawn() -> None:
    made = reference(
        "torch.searchsorted(edges, x)", "torch.randn(N, 40), torch.randn(30).sort().values",
        "x, edges",
    )  # fmt: skip
    variation = explore(made)
    drawn = [each.tensors["edges"] for each in cases(made, variation)]
    assert all(torch.equal(edges, edges.sort().values) for edges in drawn)
    assert len({edges.sum().item() for edges in drawn}) == len(drawn)


def test_flags_of_a_single_line_are_none_all_the_first_or_the_last_each_in_a_case() -> None:
    made = reference("torch.where(m, x, -x)", "torch.randn(N, 40), torch.rand(40) < 0.5", "x, m")
    drawn = [each.tensors["m"] for each in cases(made, explore(made))]
    changes = [int((flags[1:] != flags[:-1]).sum()) for flags in drawn]
    assert any(not flags.any() for flags in drawn) and any(flags.all() for flags in drawn)
    assert any(one == 1 and flags[0] for one, flags in zip(changes, drawn, strict=True))
    assert any(one == 1 and flags[-1] for one, flags in zip(changes, drawn, strict=True))
    needed = reference("x[:, m].mean(1)", "torch.randn(N, 40), torch.rand(40) < 0.5", "x, m")
    assert all(each.tensors["m"].any() for each in cases(needed, explore(needed)))


def test_infinities_of_a_mask_lie_elsewhere_in_a_case() -> None:
    mask = "torch.zeros(N, 40).masked_fill(torch.rand(N, 40) < 0.3, -torch.inf)"
    made = reference("torch.softmax(x + m, 1)", f"torch.randn(N, 40), {mask}", "x, m")
    masks = [each.tensors["m"].isneginf() for each in cases(made, explore(made))]
    lines = [flags for flags in masks[1] if flags.any()]
    assert sum(int((line[1:] != line[:-1]).sum()) == 1 for line in lines) >= 8, "as padding is"
    assert not any(flags.all(1).any() for flags in masks)


@pytest.mark.parametrize("count", [10, 20, 1000, 10240])
@pytest.mark.parametrize(("more", "kept"), [(0, True), (-1, False)])
def test_a_tenth_of_zeros_is_structure(count: int, more: int, kept: bool) -> None:
    own = torch.ones(count)
    own[1 : 1 + count // 10 + more] = 0.0
    assert has_structure(own, "x", Variation()) is kept
