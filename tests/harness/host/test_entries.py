"""Kernels of a PTX file: what a comment says of them is not heard."""

from __future__ import annotations

import pytest

from kernelblaster.harness.host.entries import Entry, read_entries
from kernelblaster.harness.vetting.ptx_tokens import NotPtx

PTX = """
.version 9.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .entry k(
	.param .u64 .ptr .global .align 16 k_param_0,
	.param .align 8 .b8 k_param_1[24], // .param .f64 k_param_2
	.param .f32 k_param_3
)
.maxntid 32, 4 /* .maxntid 7 */
{
	.param .b64 q;
	// .entry k(.param .u8 a) {
	ret;
}
.entry plain() { ret; }
.func f(.param .b64 a) { ret; }
"""


def test_parameters_and_bounds() -> None:
    assert read_entries(PTX) == {"k": Entry((8, 24, 4), 128), "plain": Entry((), 1024)}


def test_a_block_of_one_size_only() -> None:
    head = PTX.replace(".entry plain()", ".entry plain() .blocksareclusters .reqntid 32, 2, 1")
    assert read_entries(head)["plain"] == Entry((), 64, (32, 2, 1))


@pytest.mark.parametrize(
    ("inside", "waiting"),
    [("k", {"k"}), ("plain", {"plain"}), ("f", {"k", "plain"}), ("", set())],
)
def test_who_waits_for_the_launch_before(inside: str, waiting: set[str]) -> None:
    head, mark, rest = PTX.partition(f" {inside}(") if inside else (PTX, "", "")
    body = rest.replace("ret;", "griddepcontrol.wait; ret;", 1)
    found = read_entries(head + mark + body)
    assert {name for name, entry in found.items() if entry.waits} == waiting


def test_what_is_no_ptx() -> None:
    with pytest.raises(NotPtx):
        read_entries("/*")
