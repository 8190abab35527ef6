"""Find out whether the models of a plan can be asked, without paying for a call."""

from __future__ import annotations

import asyncio

from ...harness.doctor import Check
from ...harness.errors import UserError
from .call_failures import CallFailed, explained
from .chat_models import NO_KEY, OPENAI_URL, check_models, read_key
from .records import BUILTIN, ROLES, ModelPlan

SECONDS = 10.0
SHOWN = 8
"""Names of models that are listed where the wanted one is missing."""


async def check_endpoint(plan: ModelPlan) -> Check:
    """Return doctor's line about the models: the endpoint answers, and knows them by name."""
    names = sorted({plan.model_of(role) for role in ROLES} - {BUILTIN})
    if not names:
        return _check(True, "built-in reasoners: no key needed")
    try:
        await asyncio.to_thread(check_models, plan)
    except UserError as error:
        return _check(False, str(error), "runs with --model builtin go on without")
    wanted = [name.partition(":")[2] for name in names if name.startswith("openai:")]
    if not wanted:
        return _check(True, f"{', '.join(names)} can be imported")
    address = plan.base_url or OPENAI_URL
    try:
        served = await _served(address)
    except (CallFailed, UserError) as error:
        return _check(False, f"{address}: {error}", "start the server, or check --base-url")
    missing = [name for name in wanted if name not in served]
    if missing:
        some = ", ".join(served[:SHOWN]) or "none"
        return _check(False, f"{address} does not list {', '.join(missing)}", f"it lists: {some}")
    return _check(True, f"{address} answers and has {', '.join(wanted)}")


def _check(passed: bool, finding: str, remedy: str = "") -> Check:
    return Check(
        name="model endpoint", passed=passed, required=False, finding=finding, remedy=remedy
    )


async def _served(address: str) -> list[str]:
    import openai

    def build() -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=read_key() or NO_KEY, base_url=address, timeout=SECONDS, max_retries=0
        )

    async with await asyncio.to_thread(build) as client:
        try:
            page = await client.models.list()
        except Exception as error:  # As in asking: whatever reading an answer comes to.
            raise explained(error, "the endpoint") from error
    return [model.id for model in page.data]
