"""Whether what a kernel computes depends on the GPU's clocks, whatever file its lines come from.

The toolkit's barriers, pipelines and atomics look at the clock to sleep while they wait, and no
answer depends on how long. That is a property of the code: a value made of a clock goes into
arithmetic, into the time of a nanosleep and into branches; and between such a branch and the place
where its sides meet again nothing happens but arithmetic and sleep. What is set in between counts
as made of the clock too. So a line that pretends to be the toolkit's gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .ptx_statements import Statement, register_name

CLOCK = re.compile(r"%(?:globaltimer(?:_lo|_hi)?|clock(?:64|_hi)?|pm\d+(?:_64)?)$")
_ARITHMETIC = frozenset((
    "mov", "add", "sub", "mul", "mad", "div", "rem", "min", "max", "abs", "neg", "not", "and", "or",
    "xor", "shl", "shr", "shf", "setp", "set", "selp", "slct", "cvt", "bfe", "bfi", "lop3", "fma",
))  # fmt: skip
_SLEEP = "nanosleep"
_MOST_PASSES, _MOST_BRANCHES = 64, 1024
"""More than any waiting loop has: what takes longer to judge acts by the clock."""
_REGISTER = re.compile(r"[%\w$]*[A-Za-z_$%][\w$]*$")


def depends_on_clock(body: Sequence[Statement]) -> Statement | None:
    """Return a statement of a function's body that acts by the time; None where none does.

    Args:
        body: the statements of one function, in order.
    """
    flow = _Flow(body)
    timed: set[str] = set()
    inside: set[int] = set()
    """Statements that run or not by the time."""
    acting = [
        index for index, statement in enumerate(body)
        if statement.word not in ("{", "}") and not statement.word.startswith(".")
    ]  # fmt: skip
    reads = {index: _reads(body[index]) for index in acting}
    followed: set[int] = set()
    for _ in range(_MOST_PASSES):
        before = len(timed), len(inside)
        for index in acting:
            statement = body[index]
            by_time = index in inside or statement.guard in timed
            if not (by_time or reads[index] & timed or any(map(CLOCK.match, reads[index]))):
                continue
            if statement.word in _ARITHMETIC:
                timed |= _writes(statement)
            elif statement.word != "bra":
                if statement.word != _SLEEP:
                    return statement
            elif statement.guard in timed and index not in followed:
                followed.add(index)
                if len(followed) > _MOST_BRANCHES:
                    return statement
                inside |= flow.until_sides_meet(index)
        if before == (len(timed), len(inside)):
            return None
    return body[acting[-1]]


def _writes(statement: Statement) -> set[str]:
    operands = statement.operands
    return _registers(operands[0]) if operands else set()


def _reads(statement: Statement) -> set[str]:
    """Return the registers that an instruction reads; those of an address that it writes to too."""
    operands = statement.operands
    if statement.word in _ARITHMETIC:
        operands = operands[1:]
    return {name for operand in operands for name in _registers(operand)}


def _registers(words: Sequence[str]) -> set[str]:
    return {register_name(word) for word in words if _REGISTER.match(word)}


class _Flow:
    """The ways through a function, statement by statement."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self._end = len(body)
        places: dict[str, list[int]] = {}
        for index, statement in enumerate(body):
            for label in statement.labels:
                places.setdefault(label, []).append(index)
        self._next = [self._follow(body, index, places) for index in range(len(body))]
        self._behind: list[int] | None = None

    def _follow(
        self, body: Sequence[Statement], index: int, places: dict[str, list[int]]
    ) -> list[int]:
        statement = body[index]
        if statement.word in ("ret", "exit", "trap"):
            return [self._end] if not statement.guard else [self._end, index + 1]
        if statement.word == "bra":
            # Labels of inner scopes may share a name: any of them may be meant.
            found = [at for words in statement.operands for word in words
                     for at in places.get(word, (self._end,))]  # fmt: skip
            return [*found, index + 1] if statement.guard else found
        if statement.word == "brx":
            return [at for found in places.values() for at in found]
        return [index + 1]

    def until_sides_meet(self, branch: int) -> set[int]:
        """Return what may run after a branch before its sides meet on every way to the end."""
        meeting = self._behind_all(branch)
        found: set[int] = set()
        waiting = list(self._next[branch])
        while waiting:
            at = waiting.pop()
            if at not in (meeting, self._end) and at not in found:
                found.add(at)
                waiting.extend(self._next[at])
        return found

    def _behind_all(self, branch: int) -> int:
        """Return the first statement that every way from a branch to the end goes through."""
        if self._behind is None:
            self._behind = self._post_dominators()
        return self._behind[branch]

    def _post_dominators(self) -> list[int]:
        """Return the immediate post-dominator of each statement (Cooper, Harvey and Kennedy).

        The end stands for statements from which no way leads there.
        """
        before: list[list[int]] = [[] for _ in range(self._end + 1)]
        for at, following in enumerate(self._next):
            for to in following:
                before[min(to, self._end)].append(at)
        order, seen, stack = list[int](), {self._end}, [(self._end, iter(before[self._end]))]
        while stack:
            at, rest = stack[-1]
            for to in rest:
                if to not in seen:
                    seen.add(to)
                    stack.append((to, iter(before[to])))
                    break
            else:
                order.append(at)
                stack.pop()
        number = {at: place for place, at in enumerate(order)}
        found = {self._end: self._end}
        changed = True
        while changed:
            changed = False
            for at in reversed(order[:-1]):
                known = [min(to, self._end) for to in self._next[at]]
                known = [to for to in known if to in found]
                meeting = known[0]
                for other in known[1:]:
                    while meeting != other:
                        while number[meeting] < number[other]:
                            meeting = found[meeting]
                        while number[other] < number[meeting]:
                            other = found[other]
                if found.get(at) != meeting:
                    found[at], changed = meeting, True
        return [found.get(at, self._end) for at in range(self._end)]
