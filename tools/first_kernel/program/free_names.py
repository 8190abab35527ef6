"""Names that nothing else has yet."""

from __future__ import annotations


def free_name(wanted: str, taken: set[str]) -> str:
    """Return a name, with a number behind it where it is taken; it is taken from now on."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
