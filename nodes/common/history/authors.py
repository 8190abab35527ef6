"""Who a text is by, when several had a part in it, and how that is told."""

from __future__ import annotations

from collections.abc import Mapping

from ....tools.models.records import BUILTIN


def is_built_in(author: str) -> bool:
    """Say whether the built-in reasoner spoke, in its own role or in a model's place."""
    return author == BUILTIN or author.startswith(f"{BUILTIN} (")


def together(*authors: str) -> str:
    """Return who a text is by, of those who had a part in it.

    Figures put into words by rule sign nothing beside words that somebody chose.
    """
    return " and ".join(dict.fromkeys(name for name in authors if name != BUILTIN)) or BUILTIN


def roles_in_words(models: Mapping[str, str]) -> str:
    """Return which roles somebody else than the built-in reasoner answers in; empty where none."""
    roles: dict[str, list[str]] = {}
    for role, name in models.items():
        roles.setdefault(name, []).append(role)
    others = {name: asked for name, asked in roles.items() if name != BUILTIN}
    if others and BUILTIN not in roles and len(others) == 1:
        return f"{next(iter(others))} in every role"
    return "; ".join(f"{name} as {', '.join(asked)}" for name, asked in others.items())
