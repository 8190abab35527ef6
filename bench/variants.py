"""Reads `--policy` and `--ablate`: each a word that stands for a policy and its settings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ..harness.errors import UserError, told_of
from ..nodes.common.policies import (
    RULES,
    by_rounds,
    editable,
    require_counted,
    under_policy,
)
from ..nodes.records.plan import POLICIES, RunContext
from ..tools.models.chat_models import parse_models
from ..tools.models.records import BUILTIN
from .records import Variant

BASE = "kernelblaster"
_WRITTEN = re.compile(r"(?P<policy>[A-Za-z_0-9]+)(?:\[(?P<settings>[^\[\]]*)\])?")
NOT_A_VARIANTS = frozenset(
    {
        "gpu", "device", "models", "budgets", "on_budget", "knowledge", "seed", "policy", "approve",
        "fresh", "shared",
    }
)  # fmt: skip
"""Fields of `RunContext` that all runs of a bench have in common."""

_ABLATIONS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "memory": ("memory", ("live", "frozen", "seed", "off", "shuffled")),
    "gradient": ("gradient", ("true", "false")),
    "counters": ("counters", ("true", "false")),
    "breadth": ("rollouts", (1, 2, 4, 8)),
    "depth": ("steps", (1, 2, 4, 8)),
}
"""Of each word, the setting and the values that it goes through."""
ABLATIONS = (*_ABLATIONS, "models")


def parse_variants(text: str, common: RunContext) -> tuple[Variant, ...]:
    """Return the variants that `--policy` names: NAME or NAME[SETTING=VALUE,...], with commas.

    Raises:
        UserError: an unknown policy or setting, a bad value, or a variant named twice.
    """
    found: list[Variant] = []
    for name in _split(text):
        written = _WRITTEN.fullmatch(name)
        if written is None:
            raise UserError(f"--policy {name}: write NAME or NAME[SETTING=VALUE,SETTING=VALUE]")
        found.append(_variant(written["policy"], _pairs(name, written["settings"] or ""), common))
    names = [each.name for each in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--policy: {twice[0]} is named twice")
    if not found:
        raise UserError(f"--policy names none; there are {', '.join(POLICIES)}")
    return tuple(found)


def ablation(word: str, model: str, common: RunContext) -> tuple[Variant, ...]:
    """Return the variants of `--ablate WORD`.

    Args:
        word: one of ABLATIONS.
        model: `--model`: `models` goes through its roles, each built in alone and all together.
        common: what all runs have in common.

    Raises:
        UserError: an unknown word, or `models` without a model.
    """
    if word == "models":
        return _by_role(model, common)
    if word not in _ABLATIONS:
        raise UserError(f"--ablate {word}: choose one of {', '.join(ABLATIONS)}")
    name, values = _ABLATIONS[word]
    return tuple(_variant(BASE, {name: str(value)}, common) for value in values)


def _by_role(model: str, common: RunContext) -> tuple[Variant, ...]:
    roles = {role: name for role, name in parse_models(model).items()
             if name != BUILTIN and role in RULES["kernelblaster"].roles}  # fmt: skip
    if not roles:
        raise UserError("--ablate models needs --model: it goes through the roles that have one")
    without = {
        role: {other: name for other, name in roles.items() if other != role} for role in roles
    }
    variants = [
        _built(BASE, f"{BASE}[models=all]", {"model": _told(roles)}, common),
        _built(BASE, f"{BASE}[models=none]", {"model": BUILTIN}, common),
    ]
    if len(roles) > 1:
        variants += [
            _built(BASE, f"{BASE}[models=all but {role}]", {"model": _told(left)}, common)
            for role, left in without.items()
        ]
    return tuple(variants)


def lengthened(variant: Variant, common: RunContext, named: frozenset[str]) -> dict[str, Any]:
    """Return a variant's settings with loops long enough to use up a cap on evaluations.

    Args:
        variant: whose they are.
        common: what all runs have in common, the caps too.
        named: settings that the caller chose, which stay.
    """
    settings = dict(variant.settings)
    cap = common.budgets.evaluations
    context = variant.in_place_of(common)
    if cap is None:
        return settings
    name = "rounds" if by_rounds(context.policy) else "iterations"
    if name in editable(context.policy) and name not in named | set(settings):
        settings[name] = max(1, cap if name == "rounds" else -(-cap // context.rollouts))
    return settings


def _told(roles: Mapping[Any, str]) -> str:
    """Return roles and models as `--model` has them."""
    return ",".join(f"{role}={name}" for role, name in roles.items()) or BUILTIN


def _variant(policy: str, pairs: Mapping[str, str], common: RunContext) -> Variant:
    name = policy + (f"[{','.join(f'{k}={v}' for k, v in pairs.items())}]" if pairs else "")
    return _built(policy, name, pairs, common)


def _built(policy: str, name: str, pairs: Mapping[str, Any], common: RunContext) -> Variant:
    if policy not in POLICIES:
        close = difflib.get_close_matches(policy, POLICIES, 1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(POLICIES)}"
        raise UserError(f"--policy {name}: there is no policy {policy}; {meant}")
    known = [field for field in RunContext.model_fields if field not in NOT_A_VARIANTS]
    for setting in pairs:
        if setting not in known:
            raise UserError(
                f"--policy {name}: there is no setting {setting} of one policy; there are "
                f"{', '.join(known)}"
            )
    asked = dict(common) | {"policy": policy} | dict(pairs)
    try:
        require_counted(policy, pairs)
        context = under_policy(RunContext.model_validate(asked))
    except ValidationError as error:
        raise UserError(f"--policy {name}: {told_of(error)}") from error
    except UserError as error:
        raise UserError(f"--policy {name}: {error}") from error
    settings = {each: getattr(context, each) for each in ("policy", *pairs)}
    if "model" not in pairs and "=" in common.model:
        settings["model"] = _told(
            {role: each for role, each in parse_models(common.model).items()
             if role in RULES[context.policy].roles}
        )  # fmt: skip
    folder = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")
    return Variant(name=name, folder=folder, settings=settings)


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        setting, equals, value = part.partition("=")
        if not (equals and setting and value):
            raise UserError(f"--policy {name}: {part} is no SETTING=VALUE")
        pairs[setting.strip()] = value.strip()
    return pairs


def _split(text: str) -> list[str]:
    """Return what stands between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
