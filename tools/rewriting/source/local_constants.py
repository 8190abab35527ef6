"""Sizes that a kernel names in its body, moved before it: what is rewritten may need them there."""

from __future__ import annotations

import re
from collections.abc import Set

_KERNEL = re.compile(r"^__global__ void (\w+)\(.*?^}$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"\) \{\n((?: +constexpr (?:int|long long) \w+ = [^;\n]+;\n)+)")
_CONSTANT = re.compile(r"constexpr (int|long long) (\w+) = ([^;\n]+);")


def with_sizes_before(source: str, rewritten: str) -> str:
    """Return a source in which kernels that were rewritten have the sizes of their bodies before.

    Args:
        source: as it was; the same text is returned where there is nothing to move.
        rewritten: what a rewrite made of it: kernels that it left alone are left alone, unless
            code around them names their sizes.
    """
    after = {found[1]: found[0] for found in _KERNEL.finditer(rewritten)}
    changed = {
        found[1] for found in _KERNEL.finditer(source) if after.get(found[1]) != found[0]
    }
    around = _words(_KERNEL.sub("", rewritten)) - _words(_KERNEL.sub("", source))
    changed |= {found[1] for found in _KERNEL.finditer(source) if around & _sizes_in(found[0])}
    taken = _words(source)
    return _KERNEL.sub(lambda found: _moved(found, changed, taken), source)


def _words(text: str) -> Set[str]:
    return set(re.findall(r"\w+", text))


def _sizes_in(kernel: str) -> Set[str]:
    head = _HEAD.search(kernel)
    return {name for _, name, _ in _CONSTANT.findall(head[1])} if head else set()


def _moved(found: re.Match[str], changed: Set[str], taken: Set[str]) -> str:
    text, kernel = found[0], found[1]
    head = _HEAD.search(text)
    if kernel not in changed or head is None:
        return text
    lines = []
    body = text[: head.start(1)] + text[head.end(1) :]
    for ctype, name, value in _CONSTANT.findall(head[1]):
        chosen = f"{kernel}_{name}".upper()
        while chosen in taken:
            chosen += "_"
        lines.append(f"constexpr {ctype} {chosen} = {value};")
        body = re.sub(rf"\b{name}\b", chosen, body)
    return "\n".join([*lines, "", body])
