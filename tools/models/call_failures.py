"""What a failed model call means: try again, give up, or the user has to mend something."""

from __future__ import annotations

import email.utils
import time
from typing import Any

from ...harness.errors import UserError
from .chat_models import without_key

LONGEST_WAIT_SECONDS = 600.0
"""Of a Retry-After; who says more is not asked again."""

DATA_CODES = frozenset(
    {"context_length_exceeded", "content_filter", "content_policy_violation", "invalid_prompt"}
)
"""Codes of status 400 that speak of this one prompt, not of how the endpoint is set up."""


class CallFailed(Exception):
    """A call brought no reply."""

    def __init__(
        self, reason: str, *, again: bool, maybe_paid: bool, wait_seconds: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        """Trying again may help."""
        self.maybe_paid = maybe_paid
        """The server may have computed a reply."""
        self.wait_seconds = wait_seconds
        """How long the server asked us to wait."""


def explained(error: Exception, model: str) -> CallFailed:
    """Return what an exception of a chat model means.

    Knows the openai client's exceptions by their attributes, so that other providers' clients,
    which follow the same pattern, are understood too.

    Raises:
        UserError: the endpoint's setting is wrong: key, model's name, form of reply, quota.
    """
    status = getattr(error, "status_code", None)
    words = " ".join(without_key(_words(error)).split())[:500]
    if isinstance(status, int):
        return _status(error, status, words, model)
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return CallFailed(f"timed out: {words}", again=True, maybe_paid=True)
    if isinstance(error, ConnectionError) or "Connection" in type(error).__name__:
        refused = "ConnectError" in {type(each).__name__ for each in _causes(error)}
        return CallFailed(f"no connection: {words}", again=True, maybe_paid=not refused)
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
            again=wait is None or wait <= LONGEST_WAIT_SECONDS,
            maybe_paid=status in (408, 504),
            wait_seconds=wait,
        )
    too_long = "context" in words.lower() and ("length" in words.lower() or "size" in words.lower())
    if status in (400, 413, 422) and (code in DATA_CODES or too_long):
        return CallFailed(f"HTTP {status}: {words}", again=False, maybe_paid=False)
    advice = {
        401: "check the key in OPENAI_API_KEY",
        403: "the key has no right to this model",
        404: "check the model's name and --base-url",
    }.get(status, "if the server does not know this form of reply, try --structured-output")
    raise UserError(f"{model}: HTTP {status}: {words}; {advice}, then resume the run")


def _words(error: Exception) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__
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

