"""Clusters of blocks, and what leaves memory holding anything: refused by name, not passed over."""

from __future__ import annotations

import pytest

from kernelblaster.harness.simt.decode.decoder import UnsupportedInstruction, decode
from kernelblaster.harness.simt.ptx.parser import parse

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def refused(limits: str = "", body: str = "") -> str:
    """Return why a kernel is refused; nothing where it is not."""
    registers = ".reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p<2>;"
    text = f"{HEAD}.visible .entry k() {limits}\n{{ {registers} {body} ret; }}\n"
    try:
        decode(parse(text), "k", 0, {})
    except UnsupportedInstruction as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "limits",
    [
        ".reqnctapercluster 2, 1, 1", ".reqnctapercluster 1, 1, 4", ".explicitcluster",
        ".blocksareclusters .reqntid 32, 1, 1 .reqnctapercluster 2",
    ],
)  # fmt: skip
def test_a_kernel_whose_text_makes_clusters_is_refused(limits: str) -> None:
    assert "thread block clusters" in refused(limits)


@pytest.mark.parametrize(
    "limits",
    [
        "", ".maxntid 32, 1, 1", ".explicitcluster .reqnctapercluster 1, 1, 1",
        ".blocksareclusters .reqntid 32, 2, 1 .reqnctapercluster 1, 1, 1",
    ],
)  # fmt: skip
def test_a_cluster_of_one_block_is_none(limits: str) -> None:
    assert not refused(limits, "mov.u32 %r1, %cluster_ctarank;")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("mov.u64 %d1, 1024; discard.global.L2 [%d1], 128;", "discard"),
        ("mov.pred %p1, %is_explicit_cluster;", "special register"),
    ],
)
def test_what_is_not_known_is_not_passed_over(body: str, why: str) -> None:
    assert why in refused(body=body)
