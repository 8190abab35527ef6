"""What differs between two versions of a file, with what stands around it."""

from __future__ import annotations

import difflib
import re

AROUND = 6
"""Lines shown before and after a change."""
_HEAD = re.compile(r"^[A-Za-z_].*\(")


def difference(before: str, after: str, around: int = AROUND) -> str:
    """Return the changed parts of a file, each under the function that it begins in.

    Lines begin with `+` where they are new, `-` where they are gone, a space where they stay; a
    part begins with the number of its first line in the file as it is now.
    """
    old, new = before.splitlines(), after.splitlines()
    parts: list[str] = []
    matched = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matched.get_grouped_opcodes(around):
        first = group[0][3]
        head = next((line for line in reversed(new[: first + 1]) if _HEAD.match(line)), "")
        within = f", in {head.rstrip(' {')}" if head else ""
        parts.append(f"@@ line {first + 1}{within}")
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                parts += [f" {line}" for line in new[j1:j2]]
                continue
            parts += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    return "\n".join(parts)
