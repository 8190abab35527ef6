"""Diffs that reports show: what changed, with the numbers of both texts and where it is."""

from __future__ import annotations

from kernelblaster.reports.diffs import diff_of

PARENT = "int n;\n__global__ void k() {\n  a;\n  b;\n  c;\n  d;\n  e;\n}\n"


def test_a_diff_says_what_changed_and_where() -> None:
    found = diff_of(PARENT, PARENT.replace("  e;", "  f;\n  g;"), context=1)
    assert (found.added, found.removed) == (2, 1)
    assert [(line.kind, line.old, line.new, line.text) for line in found.lines] == [
        ("place", None, None, "__global__ void k() {"),
        ("same", 6, 6, "  d;"),
        ("removed", 7, None, "  e;"),
        ("added", None, 7, "  f;"),
        ("added", None, 8, "  g;"),
        ("same", 8, 9, "}"),
    ]


def test_places_far_apart_are_told_apart_and_equal_texts_have_none() -> None:
    found = diff_of(PARENT, PARENT.replace("int n", "int m").replace("  e;", ""), context=1)
    assert [line.text for line in found.lines if line.kind == "place"] == [
        "", "__global__ void k() {"
    ]  # fmt: skip
    assert diff_of(PARENT, PARENT).lines == ()
