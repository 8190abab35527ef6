"""Which of two products of sizes is never the larger: as far as their texts tell, at any sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

_PRODUCT = re.compile(r"[\w\s*()]+")
_SMALLER = re.compile(
    r"\(?(?P<of>[A-Za-z_]\w*)(?: (?P<sign>[-+]) (?P<by>\d+))?\)?(?: / (?P<parts>\d+))?"
)


def never_more(one: str, other: str, formulas: Mapping[str, str]) -> bool:
    """Whether a product of sizes is at most another, whatever the sizes.

    Each factor must be matched by one of the other's: itself, or what it was halved from. That one
    was the larger in all variants that are known says nothing of others.

    Args:
        one: text over constants.
        other: the text that is to be as large or larger.
        formulas: of the constants that were declared, by name.
    """
    number, factors = _factors(one, formulas)
    most, left = _factors(other, formulas)
    for factor in factors.elements():
        found = next((each for each in _upwards(factor, formulas) if left[each]), None)
        if found is None:
            return False
        left[found] -= 1
    return number <= most


def _factors(text: str, formulas: Mapping[str, str]) -> tuple[int, Counter[str]]:
    """Return the number in a product, and its other factors; other text is one factor."""
    if not _PRODUCT.fullmatch(text):
        return 1, Counter([text])
    number, found = 1, Counter[str]()
    for word in re.findall(r"\w+", text):
        if word.isdigit():
            number *= int(word)
        elif _PRODUCT.fullmatch(formulas.get(word, "+")):
            more, inner = _factors(formulas[word], formulas)
            number *= more
            found += inner
        else:
            found[word] += 1
    return number, found


def _upwards(factor: str, formulas: Mapping[str, str]) -> Iterator[str]:
    """Yield a size, and each that it is a part of: (size + 1) / 2 is at most the size."""
    yield factor
    found = _SMALLER.fullmatch(formulas.get(factor, factor))
    if found is None or found["of"] == factor:
        return
    more = int(found["by"] or 0) if found["sign"] == "+" else 0
    if more < int(found["parts"] or 1):
        yield from _upwards(found["of"], formulas)
