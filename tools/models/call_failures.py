"""What a failed model call means: try again, give up, or the user has to mend something."""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ...harness.errors import UserError
from .chat_models import without_key

LONGEST_RETRY_AFTER_SECONDS = 600.0
"""Of a Retry-After; who says more is not asked again."""

DATA_CODES = frozenset(
    {"context_length_exceeded", "content_filter", "content_policy_violation", "invalid_prompt"}
)
"""Codes of status 400 that speak of this one prompt, not of how the endpoint is set up."""


KEY_ADVICE = "check the key in OPENAI_API_KEY"

IN_A_ROW = 3
"""Calls that fail one after the other on account of their endpoint: then it is gone."""

Blame = Literal["call", "silence", "endpoint"]
"""endpoint: it was not reached, or refuses the key. silence: it was reached, and no whole reply
came: it may be slow, or gone. call: the endpoint answered, or nobody can say."""


class CallFailed(Exception):
    """A call brought no reply."""

    def __init__(
        self,
        reason: str,
        *,
        again: bool,
        maybe_paid: bool,
        wait_seconds: float | None = None,
        blame: Blame = "call",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        """Trying again may help."""
        self.maybe_paid = maybe_paid
        """The server may have computed a reply."""
        self.wait_seconds = wait_seconds
        """How long the server asked us to wait."""
        self.blame: Blame = blame


class FailuresInARow:
    """Counts the calls of one run that failed one after the other on account of their endpoint."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def gone(self) -> bool:
        """The endpoint cannot be asked: so many did not fail by chance."""
        return self.count >= IN_A_ROW

    def add(self) -> None:
        """Count one more."""
        self.count += 1

    def forget(self) -> None:
        """Begin anew: the endpoint answered."""
        self.count = 0


@lru_cache(maxsize=256)
def failures_of(directory: Path, endpoint: str) -> FailuresInARow:
    """Return this process's count for a run and an endpoint: all roles and rollouts share it."""
    return FailuresInARow()


def explained(error: Exception, model: str) -> CallFailed:
    """Return what an exception of a chat model means.

    Knows the openai client's exceptions by their attributes, so that other providers' clients,
    which follow the same pattern, are understood too.

    Raises:
        UserError: the endpoint's setting is wrong: key, model's name, form of reply, quota.
    """
    status = getattr(error, "status_code", None)
    words = said(error)
    if isinstance(status, int):
        return _status(error, status, words, model)
    unreached = why_unreached(error)
    if unreached:
        reason = f"no connection: {unreached}"
        return CallFailed(reason, again=True, maybe_paid=False, blame="endpoint")
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return CallFailed(f"timed out: {words}", again=True, maybe_paid=True, blame="silence")
    if isinstance(error, ConnectionError) or "Connection" in type(error).__name__:
        reason = f"connection dropped: {_last_words(_causes(error))}"
        return CallFailed(reason, again=True, maybe_paid=True, blame="silence")
    # A body that is no chat completion: the clients raise whatever reading it came to.
    return CallFailed(
        f"the answer of the server cannot be read: {type(error).__name__}: {words}",
        again=True,
        maybe_paid=True,
    )


def _status(error: Exception, status: int, words: str, model: str) -> CallFailed:
    code = str(getattr(error, "code", None) or "")
    if status == 429 and code == "insufficient_quota":
        raise UserError(f"{model}: the account's quota is used up: {words}")
    if status in (408, 409, 429) or status >= 500:
        wait = retry_after(getattr(getattr(error, "response", None), "headers", {}))
        return CallFailed(
            f"HTTP {status}: {words}",
            again=wait is None or wait <= LONGEST_RETRY_AFTER_SECONDS,
            maybe_paid=status in (408, 504),
            wait_seconds=wait,
        )
    too_long = "context" in words.lower() and ("length" in words.lower() or "size" in words.lower())
    if code in DATA_CODES or (status in (400, 413, 422) and too_long):
        return CallFailed(f"HTTP {status}: {words}", again=False, maybe_paid=False)
    if status in (401, 403):
        right = "" if status == 401 else ": it has no right to this model"
        reason = f"HTTP {status}: {words}; {KEY_ADVICE}{right}"
        return CallFailed(reason, again=False, maybe_paid=False, blame="endpoint")
    advice = (
        "check the model's name and --base-url"
        if status == 404
        else "if the server does not know this form of reply, try --structured-output"
    )
    raise UserError(f"{model}: HTTP {status}: {words}; {advice}, then resume the run")


def why_unreached(error: Exception) -> str:
    """Return why no connection was made; empty where one was, or where nobody can say."""
    causes = _causes(error)
    names = {type(each).__name__ for each in causes}
    if names.isdisjoint({"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "gaierror"}):
        return ""
    if "gaierror" in names:
        return "the name does not resolve"
    if "ConnectionRefusedError" in names:
        return "connection refused"
    if "ConnectTimeout" in names:
        return "no connection in time"
    fault = next((each for each in causes if isinstance(each, ssl.SSLError)), None)
    if fault is not None:
        return f"TLS: {' '.join(str(fault).split())}"
    return _last_words(causes)


def said(error: Exception) -> str:
    """Return what a server or its client says of a failure, on one line, without the key."""
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        words = str(body["message"])
    else:
        words = str(error) or type(error).__name__
    if words.lstrip().startswith("<"):
        words = "a web page"
    return " ".join(without_key(words).split())[:500]


def _last_words(causes: Sequence[BaseException]) -> str:
    words = next((str(each) for each in reversed(causes) if str(each)), "no words")
    return " ".join(without_key(words).split())[:500]


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def retry_after(headers: Any) -> float | None:
    """Return the seconds of a Retry-After header (a number or a date), or None."""
    milliseconds = headers.get("retry-after-ms")
    text = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if text is None else max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(str(text))
    except (ValueError, TypeError):
        return None
    return max(0.0, when.timestamp() - time.time())

