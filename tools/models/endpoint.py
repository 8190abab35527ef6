"""Find out whether the models of a plan can be asked, before anything is begun or paid.

The endpoint's list of models is asked for once. What the list leaves open is asked with a chat
completion of an empty conversation: servers refuse that before they compute anything, and say by
their refusal whether they know the key and the model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...harness.errors import UserError
from ...harness.records.record import Record
from .call_failures import KEY_ADVICE, failures_of, said, why_unreached
from .chat_models import NO_KEY, OPENAI_URL, read_key
from .records import ModelPlan

if TYPE_CHECKING:
    import openai

SHOWN = 8
"""Names of models that are listed where the wanted one is missing."""
UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|not supported|not available)"
    r"|(unknown|invalid|no such|no) model|not a valid model|model_not_found",
    re.IGNORECASE | re.DOTALL,
)
"""How servers say with status 400 or 422 that they have no such model."""
ADDRESS = "check --base-url: the addresses of most servers end in /v1"


class Finding(Record):
    """What asking an endpoint came to."""

    verdict: Literal["good", "bad", "unclear"]
    """bad: a call would fail as this did. unclear: it did not say; a run may begin."""
    words: str
    """Which endpoint, and what it answered."""
    remedy: str = ""

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.words}; {self.remedy}" if self.remedy else self.words


async def require_endpoint(plan: ModelPlan, directory: Path, *, resumed: bool = False) -> str:
    """Return what a person should know of the endpoint of a run's models; empty: all is well.

    A run that is resumed, and whose built-in reasoners may stand in, goes on without an endpoint.

    Raises:
        UserError: the endpoint cannot be reached, refuses the key, or has no such model.
    """
    finding = await ask_endpoint(plan)
    if finding.verdict == "bad" and not (resumed and plan.on_model_failure == "builtin"):
        raise UserError(f"{', '.join(plan.names)}: {finding.line}")
    if finding.verdict != "bad":
        for name in plan.names:
            failures_of(directory, plan.endpoint_of(name)).forget()
    return "" if finding.verdict == "good" else f"{', '.join(plan.names)}: {finding.line}"


async def ask_endpoint(plan: ModelPlan) -> Finding:
    """Ask the endpoint of a plan once whether it is there, takes the key and knows the models.

    Models of `import:` are not asked: only they know where they live.
    """
    wanted = [name.partition(":")[2] for name in plan.names if name.startswith("openai:")]
    if not wanted or not plan.check_seconds:
        return Finding(verdict="good", words="not asked")
    address = plan.base_url or OPENAI_URL
    client = await asyncio.to_thread(_open, address, plan.check_seconds)
    try:
        async with asyncio.timeout(plan.check_seconds), client:
            return await _asked(client, address, wanted)
    except TimeoutError:
        return _silent(address, plan.check_seconds)


def _open(address: str, seconds: float) -> openai.AsyncOpenAI:
    """Return a client that has imported all it needs: that is no time of the endpoint's."""
    import openai

    client = openai.AsyncOpenAI(
        api_key=read_key() or NO_KEY, base_url=address, timeout=seconds, max_retries=0
    )
    _ = client.models.with_raw_response, client.chat.completions.with_raw_response
    return client


async def _asked(client: openai.AsyncOpenAI, address: str, wanted: Sequence[str]) -> Finding:
    """Ask for the list of models, and then, by name, for those that it leaves open."""
    try:
        page = await client.models.with_raw_response.list()
    except Exception as error:  # A client may raise anything while it reads an answer.
        found = await asyncio.to_thread(_failed, error, address, "the list of models")
        # Some servers have no list, and some keys may not read it.
        return found or await _greeted(client, address, wanted, None)
    if not _is_json(page.text):
        return _no_json(address, page.text)
    listed = _names(page.text)
    missing = [name for name in wanted if listed is None or not _has(listed, name)]
    if not missing:
        return Finding(verdict="good", words=f"{address} answers and has {', '.join(wanted)}")
    if address == OPENAI_URL and listed is not None:  # Its list is final.
        return _not_there(address, missing, listed)
    return await _greeted(client, address, missing, listed)


async def _greeted(
    client: openai.AsyncOpenAI, address: str, names: Sequence[str], listed: Sequence[str] | None
) -> Finding:
    """Ask for models by name with an empty conversation; return the worst of the answers."""
    found = await asyncio.gather(*(_greet(client, address, name, listed) for name in names))
    return min(found, key=lambda each: ("bad", "unclear", "good").index(each.verdict))


async def _greet(
    client: openai.AsyncOpenAI, address: str, name: str, listed: Sequence[str] | None
) -> Finding:
    try:
        answer = await client.chat.completions.with_raw_response.create(
            model=name, messages=[], max_tokens=1
        )
    except Exception as error:  # As above.
        status = getattr(error, "status_code", None)
        words = await asyncio.to_thread(said, error)
        if status == 404 or (status in (400, 422) and UNKNOWN_MODEL.search(words)):
            return _not_there(address, [name], listed, f" (HTTP {status}: {words})")
        if status in (401, 403):
            return _refused(address, status, words)
        found = await asyncio.to_thread(_failed, error, address, name)
        if found and (found.verdict == "bad" or listed is None):
            return found
    else:
        if not _is_json(answer.text):
            return _no_json(address, answer.text)
    if listed is None:
        return Finding(verdict="good", words=f"{address} answers; it does not list its models")
    return Finding(
        verdict="unclear",
        words=f"{address} does not list {name}, and does not refuse it",
        remedy=_lists(listed),
    )


def _failed(error: Exception, address: str, asked_for: str) -> Finding | None:
    """Return what an exception means; None where another question may still be answered."""
    unreached, words = why_unreached(error), said(error)
    status = getattr(error, "status_code", None)
    if unreached:
        return Finding(
            verdict="bad",
            words=f"{address} cannot be reached: {unreached}",
            remedy="start the server, or check --base-url",
        )
    if isinstance(status, int):
        if status == 429 and getattr(error, "code", None) == "insufficient_quota":
            return Finding(verdict="bad", words=f"{address}: the account's quota is used up")
        if status == 401 and not re.search("scope|permission", words, re.IGNORECASE):
            return _refused(address, status, words)
        if status in (408, 409, 429) or (status >= 500 and status != 501):
            unsaid = f"{address} did not answer for {asked_for} (HTTP {status}: {words})"
            return Finding(verdict="unclear", words=unsaid)
        return None
    if "Timeout" in type(error).__name__:
        raise TimeoutError from error
    return Finding(
        verdict="bad", words=f"{address} does not speak as a model's endpoint: {words}",
        remedy=ADDRESS,
    )  # fmt: skip


def _silent(address: str, seconds: float) -> Finding:
    return Finding(
        verdict="bad",
        words=f"{address} does not answer within {seconds:g} s",
        remedy="see whether the server hangs, check --base-url, or give it longer with "
        "KERNELBLASTER_MODEL_CHECK_SECONDS",
    )


def _refused(address: str, status: int, words: str) -> Finding:
    refusal = f"{address} refuses the key (HTTP {status}: {words})"
    return Finding(verdict="bad", words=refusal, remedy=KEY_ADVICE)


def _no_json(address: str, text: str) -> Finding:
    what = "a web page" if text.lstrip().startswith("<") else "no JSON"
    return Finding(verdict="bad", words=f"{address} answers with {what}", remedy=ADDRESS)


def _not_there(
    address: str, missing: Sequence[str], listed: Sequence[str] | None, why: str = ""
) -> Finding:
    return Finding(
        verdict="bad",
        words=f"{address} has no model {', '.join(missing)}{why}",
        remedy=f"check the name and --base-url (most end in /v1){_lists(listed, '; ')}",
    )


def _lists(listed: Sequence[str] | None, before: str = "") -> str:
    if listed is None:
        return ""
    return f"{before}it lists: {', '.join(listed[:SHOWN]) or 'none'}"


def _has(listed: Sequence[str], name: str) -> bool:
    # Ollama lists `name` as `name:latest`, Gemini as `models/name`.
    return not {name, f"{name}:latest", f"models/{name}"}.isdisjoint(listed)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _names(text: str) -> list[str] | None:
    """Return the names in a list of models, or None where that is no such list."""
    page: Any = json.loads(text)
    data = page.get("data") if isinstance(page, dict) else None
    if not isinstance(data, list):
        return None
    names = [entry.get("id") for entry in data if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str)]
