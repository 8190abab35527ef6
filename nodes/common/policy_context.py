"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations


def architecture_family(arch: str) -> str:
    """Return the family of an architecture such as sm_90: what gains carry over within."""
    digits = "".join(ch for ch in arch if ch.isdigit())
    names = {"80": "ampere", "86": "ampere", "87": "ampere", "89": "ada", "90": "hopper"}
    return names.get(digits, f"sm_{digits[:-1]}x" if digits else arch)
