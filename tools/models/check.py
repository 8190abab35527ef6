"""Doctor's line about the models of the settings."""

from __future__ import annotations

import asyncio

from ...harness.doctor import Check
from ...harness.errors import UserError
from .chat_models import check_models
from .endpoint import ask_endpoint
from .records import ModelPlan


async def check_endpoint(plan: ModelPlan) -> Check:
    """Return doctor's line about the models: the endpoint answers, and knows them by name."""
    names = ", ".join(plan.names)
    if not names:
        return _check(True, "built-in reasoners: no key needed")
    try:
        await asyncio.to_thread(check_models, plan)
    except UserError as error:
        return _check(False, str(error), "runs with --model builtin go on without")
    if "openai:" not in names:
        return _check(True, f"{names} can be imported")
    found = await ask_endpoint(plan)
    return _check(found.verdict == "good", found.words, found.remedy)


def _check(passed: bool, finding: str, remedy: str = "") -> Check:
    return Check(
        name="model endpoint", passed=passed, required=False, finding=finding, remedy=remedy
    )
