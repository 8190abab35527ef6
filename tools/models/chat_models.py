"""From a model's name to a chat model that answers: keys, endpoints, limits, and forms of reply."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...harness.errors import UserError
from .records import BUILTIN, ROLES, ModelPlan, Role

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.rate_limiters import InMemoryRateLimiter

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
KEYRING_SERVICE = "kernelblaster"
KEYRING_USER = "openai"
NO_KEY = "none"
"""Sent to an endpoint of the user's own, where no key is set: most local servers ignore it."""
LONGEST_WORD = 12
"""Letters of a word that stands in for a key; keys are longer."""

CONNECT_SECONDS = 5.0
"""Longest wait for a connection; the wait for a reply is the plan's."""
POLL_SECONDS = 0.02
"""How often a call that waits for its turn looks again."""


def parse_models(text: str) -> dict[Role, str]:
    """Return who answers in which role: MODEL for all, or ROLE=MODEL pairs with commas between.

    A plain MODEL beside pairs stands for the roles that no pair names.

    Raises:
        UserError: an unknown role, a role named twice, or no model's name.
    """
    everyone = ""
    named: dict[Role, str] = {}
    for part in (piece.strip() for piece in text.split(",")):
        left, equals, right = (side.strip() for side in part.partition("="))
        if not equals or ":" in left:
            if everyone:
                raise UserError(
                    f"--model {text}: {everyone} and {part} both stand for all roles; "
                    "name the roles of one: kernel_writer=openai:NAME"
                )
            everyone = check_name(part)
            continue
        role = next((known for known in ROLES if known == left), None)
        if role is None:
            raise UserError(f"--model: unknown role {left!r}; the roles are {', '.join(ROLES)}")
        if role in named:
            raise UserError(f"--model: role {role} is named twice")
        named[role] = check_name(right)
    roles = {role: named.get(role, everyone or BUILTIN) for role in ROLES}
    return {role: name for role, name in roles.items() if name != BUILTIN}


def check_name(name: str) -> str:
    """Return a model's name when it has a form this program knows.

    Raises:
        UserError: it has not.
    """
    kind, colon, rest = name.partition(":")
    good = name == BUILTIN or (kind == "openai" and rest)
    if kind == "import":
        module, _, attribute = rest.partition(":")
        good = all(part.isidentifier() for part in (*module.split("."), attribute))
    if not good or any(character.isspace() for character in name):
        raise UserError(
            f"unknown model {name!r}; write builtin, openai:NAME (with --base-url for a server of "
            "your own), or import:package.module:factory"
        )
    return name


def check_models(plan: ModelPlan) -> None:
    """Refuse a plan whose models cannot be asked: no key, a bad address, nothing to import.

    Raises:
        UserError: with the way to mend it.
    """
    for name in plan.names:
        check_name(name)
        if name.startswith("import:"):
            load_imported(name)
    if not any(name.startswith("openai:") for name in plan.names):
        return
    check_base_url(plan.base_url)
    if not plan.base_url and read_key() is None:
        raise UserError(
            f"{plan.names[0]} needs a key: set {KEY_VARIABLE} in the environment, or keep one with "
            f"`keyring set {KEYRING_SERVICE} {KEYRING_USER}`; a server of your own needs "
            "--base-url, and --model builtin needs neither"
        )


def check_base_url(base_url: str) -> None:
    """Refuse an address that is none, or that carries a secret into the run's files.

    Raises:
        UserError: with the way to mend it.
    """
    if not base_url:
        return
    try:
        parts = urlsplit(base_url)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        port_is_good = False
    if not port_is_good or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"--base-url {base_url.rpartition('@')[2]!r} is no address; "
            "write for example http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "--base-url must not hold a name, password or query: it is written into the run's "
            f"files; set {KEY_VARIABLE} instead"
        )


def read_key() -> str | None:
    """Return the key of the environment, else the system keyring's, else None."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if key:
        return key
    if importlib.util.find_spec("keyring") is None:
        return None
    keyring = importlib.import_module("keyring")
    try:
        stored = keyring.get_password(KEYRING_SERVICE, KEYRING_USER)
    except keyring.errors.KeyringError:
        return None  # Locked, or this machine has no keyring service.
    return str(stored) if stored else None


def without_key(text: str) -> str:
    """Return a server's words with the key, should they repeat it, taken out.

    A plain word is no secret but what servers without keys are given (none, EMPTY): replies use it.
    """
    key = read_key()
    secret = key and len(key) > 3 and not (key.isalpha() and len(key) <= LONGEST_WORD)
    return text.replace(key, "[key]") if key and secret else text


def load_imported(name: str) -> BaseChatModel:
    """Return the chat model of `import:package.module:factory`: what the factory gives, or itself.

    Raises:
        UserError: it cannot be imported or gives no chat model.
    """
    from langchain_core.language_models import BaseChatModel

    _, module, attribute = name.split(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        model = found if isinstance(found, BaseChatModel) else found()
    except Exception as error:  # Whatever a user's module raises.
        words = without_key(f"{type(error).__name__}: {error}")
        raise UserError(f"--model {name} cannot be used: {words}") from error
    if not isinstance(model, BaseChatModel):
        kind = type(model).__name__
        raise UserError(f"--model {name} gives a {kind}; it must give a LangChain chat model")
    return model


@asynccontextmanager
async def opened_model(plan: ModelPlan, name: str) -> AsyncIterator[BaseChatModel]:
    """Open the chat model of a name for one call.

    Not kept between calls: an HTTP connection belongs to one event loop, and a process may run
    several, one after the other.

    Raises:
        UserError: no key, or nothing to import.
    """
    if name.startswith("import:"):
        yield await asyncio.to_thread(load_imported, name)
        return
    model, client = await asyncio.to_thread(_openai_model, plan, name.partition(":")[2])
    try:
        yield model
    finally:
        await client.aclose()


def _openai_model(plan: ModelPlan, name: str) -> tuple[BaseChatModel, Any]:
    import openai
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    check_models(plan)
    seconds = openai.Timeout(
        plan.timeout_seconds, connect=min(plan.timeout_seconds, CONNECT_SECONDS)
    )
    trusted = _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    client = openai.DefaultAsyncHttpxClient(timeout=seconds, verify=trusted)
    options: dict[str, Any] = {}
    if plan.max_output_tokens is not None:
        # OpenAI knows only the new name of this limit, many other servers only the old one.
        options = (
            {"extra_body": {"max_tokens": plan.max_output_tokens}}
            if plan.base_url
            else {"max_completion_tokens": plan.max_output_tokens}
        )
    if "stream_chunk_timeout" in ChatOpenAI.model_fields:
        options["stream_chunk_timeout"] = plan.timeout_seconds  # Its own default is shorter.
    if plan.streaming:  # Said to be off, it would be off for who streams messages too.
        options["streaming"] = True
    model = ChatOpenAI(
        model=name,
        api_key=SecretStr(read_key() or NO_KEY),
        base_url=plan.base_url or OPENAI_URL,
        openai_proxy="",
        timeout=seconds,
        max_retries=0,
        temperature=plan.temperature,
        stream_usage=True,
        use_responses_api=False,
        http_async_client=client,
        **options,
    )
    return model, client


@lru_cache(maxsize=4)
def _trusted(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    """Return whom connections trust, which takes 50 ms to read, and is asked for at each call.

    The arguments are the variables of the environment that it hangs on.
    """
    import openai

    # openai has its clients from httpx, or from what follows that.
    library = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__)
    found: ssl.SSLContext = library.create_ssl_context()
    return found


class Turnstile:
    """Lets so many calls through at a time, and so many a minute, from whatever event loop."""

    def __init__(self, concurrency: int, requests_per_minute: float | None) -> None:
        self._places = threading.Semaphore(concurrency)
        self._limiter = _limiter(requests_per_minute)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        while not self._places.acquire(blocking=False):
            await asyncio.sleep(POLL_SECONDS)
        try:
            if self._limiter is not None:
                await self._limiter.aacquire()
            yield
        finally:
            self._places.release()


@lru_cache(maxsize=32)
def turnstile_of(
    base_url: str, concurrency: int, requests_per_minute: float | None
) -> Turnstile:
    """Return this process's turnstile for an endpoint: all runs in it share the limits."""
    return Turnstile(concurrency, requests_per_minute)


def _limiter(requests_per_minute: float | None) -> InMemoryRateLimiter | None:
    if requests_per_minute is None:
        return None
    from langchain_core.rate_limiters import InMemoryRateLimiter

    return InMemoryRateLimiter(
        requests_per_second=requests_per_minute / 60,
        check_every_n_seconds=POLL_SECONDS,
        max_bucket_size=1,
    )


def priced(plan: ModelPlan, name: str, tokens: Mapping[str, int]) -> float | None:
    """Return dollars for {in, cached, out} tokens of a model, or None where it has no price."""
    price = plan.prices.get(name.partition(":")[2]) or plan.prices.get(name)
    if price is None:
        return None
    cached = min(tokens.get("cached", 0), tokens["in"])
    return (
        (tokens["in"] - cached) * price.input_per_million
        + cached * price.cached_per_million
        + tokens.get("out", 0) * price.output_per_million
    ) / 1e6
