"""Sources as the gates read them: without comments and raw strings, line by line."""

from __future__ import annotations

import pytest

from kernelblaster.harness.vetting.source_rules import check_source, logical_lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('R"(x)"b', ['""b']),
        ('R"m(x)")m"/*a*/b', ['"" b']),
        ('R"(x\n)"b;\nc', ['""', "b;", "c"]),
        ('R"(x', ['""']),
        ("a // b\nc /* d\n */ e", ["a  ", "c  ", " e"]),
    ],
)
def test_what_is_left_of_a_source(source: str, lines: list[str]) -> None:
    found = list(logical_lines(source))
    assert [text.rstrip() for _, text in found] == [line.rstrip() for line in lines]
    assert [number for number, _ in found] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    ("probe", "refused"),
    [
        ("</etc/passwd>", True), ('"/etc/passwd"', True), ("<../secret>", True),
        ('"a/../../secret"', True), ("<cuda_bf16.h>", False), ('"task.cuh"', False),
    ],
)  # fmt: skip
def test_only_plain_names_are_asked_for(probe: str, refused: bool) -> None:
    found = check_source(f"int a;\n#if __has_include({probe})\n#endif\n")
    assert [(each.kind, each.line) for each in found] == [("forbidden_include", 2)] * refused
