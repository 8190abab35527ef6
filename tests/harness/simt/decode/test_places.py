"""Where a report says that something happened: in which buffer, at which line of host code."""

from __future__ import annotations

import pytest
from simt_support import compile_ptx

from kernelblaster.harness.judge.findings import explained, located
from kernelblaster.harness.records.builds import Diagnostic
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.simt.decode.places import Buffer, place, short_name

BUFFERS = [Buffer("x", 1000, 100), Buffer("y", 2000, 8)]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (1099, "byte 99 of x (100 bytes)"),
        (1100, "just past the end of x (100 bytes)"),
        (996, "4 bytes before the start of x (100 bytes)"),
        (1990, "10 bytes before the start of y (8 bytes)"),
        (1 << 40, "address 0x10000000000, outside device memory"),
    ],
)
def test_an_address_is_told_by_the_nearest_buffer(address: int, words: str) -> None:
    assert place(address, BUFFERS) == words


def test_shared_variables_have_the_names_of_the_source() -> None:
    assert short_name("_ZZ4rowsPKfE4tile") == "tile"
    assert short_name("_ZZN3bug4rowsEPKfE10tile_E2_ab") == "tile_E2_ab"
    assert short_name("memory") == "memory"


def test_a_line_of_inlined_code_is_its_own_and_the_callers() -> None:
    module = compile_ptx(
        "__device__ float twice(const float *x) {\n    return x[threadIdx.x] * 2.f;\n}\n"
        "__global__ void k(const float *x, float *y) {\n    y[0] = twice(x);\n}\n"
    )
    (load,) = [i for i in module.instructions if i.opcode == "ld" and "f32" in i.modifiers]
    assert (load.inner_line, load.line) == (2, 5) and load.ptx_line > 10


SOURCE = """// one<<<1, 1>>>();
int a;
one<<<1, 1>>>();
two<1> <<<1, 1>>>();
two<2><<<1, 1>>>();
"""


@pytest.mark.parametrize(
    ("message", "line", "kernel"),
    [
        ("_Z3onev<<<(1,1,1), (1,1,1), 0>>> asks for too much", 3, "one"),
        ("one<<<(1,1,1), (1,1,1), 0>>> asks for too much", 3, "one"),
        ("_Z3twoILi1EEvv<<<(1,1,1), (1,1,1), 0>>> asks", None, "two"),  # in two lines
        ("cudaMemsetAsync goes outside", None, None),  # in none
        ("out0 is not written", None, None),
    ],
)
def test_a_host_call_is_found_where_there_is_only_one(
    message: str, line: int | None, kernel: str | None
) -> None:
    found = located(Diagnostic(kind="invalid_launch", message=message), SOURCE)
    assert (found.line, found.kernel) == (line, kernel)


def test_an_unwritten_value_explains_a_wrong_answer() -> None:
    wrong = StageResult(
        outcome=Outcome.WRONG_ANSWER, reason="differs",
        diagnostics=(Diagnostic(kind="mismatch", message="differs"),),
    )  # fmt: skip
    benign = Diagnostic(kind="race_benign", message="same value", line=3)
    unwritten = Diagnostic(kind="uninitialized_read", message="read", line=4)
    assert explained(wrong, (benign,)).outcome is Outcome.WRONG_ANSWER
    assert explained(wrong, (benign,)).diagnostics[-1] == benign
    found = explained(wrong, (benign, unwritten))
    assert found.outcome is Outcome.UNINITIALIZED_READ and found.diagnostics[0] == unwritten
    assert "line 4" in found.reason and "differs" in found.reason
