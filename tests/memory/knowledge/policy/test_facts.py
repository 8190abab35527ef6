"""Rows as of a number: what they say is what all rows say, and none besides is read."""

from __future__ import annotations

from rows import row

from kernelblaster.memory.knowledge.policy.facts import Facts, Rows


def facts_of_nine() -> tuple[Facts, list[str]]:
    """Return nine rows of three techniques in two states, every third of a GPU."""
    facts, names = Facts(), []
    for number in range(9):
        each = row(
            technique=f"t{number % 3}", state_before=f"s{number % 2}", step=number,
            device_kind="cuda" if number // 3 == 1 else "simulated",
        )  # fmt: skip
        names.append(f"told {number}")
        facts.add(number + 1, names[-1], each)
    return facts, names


def test_rows_are_those_up_to_a_number_and_the_later_ones_named() -> None:
    facts, names = facts_of_nine()
    rows = Rows(facts, 6, later=[names[8], names[2], "unknown"])
    assert list(rows) == [*names[:6], names[8]] and len(rows) == 7
    assert names[8] in rows and names[7] not in rows and "unknown" not in rows
    assert rows[names[2]] is facts.row(names[2])


def test_rows_of_a_technique_and_of_a_state_are_those_of_comparable_devices() -> None:
    facts, names = facts_of_nine()
    rows = Rows(facts, 6, later=[names[8]])
    assert list(rows.of("t2", "simulated")) == [names[2], names[8]]
    assert list(rows.of("t2", "cuda")) == [names[5]]
    assert list(rows.began_in(["s0", "s1", "s0"], "simulated")) == [*names[:3], names[8]]


def test_no_other_row_is_looked_at() -> None:
    facts, names = facts_of_nine()
    rows, read = Rows(facts, 6), list[int]()
    told = facts.told
    facts.told = lambda at: read.append(at) or told(at)  # type: ignore[method-assign,func-returns-value]
    assert names[2] in rows and rows.of("t1", "simulated") and rows.began_in(["s0"], "cuda")
    assert not read
