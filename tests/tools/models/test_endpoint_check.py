"""Asking an endpoint before a run: who is there, who is not, and who does not say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai_server import OpenAiServer, Say

from kernelblaster.harness.errors import UserError
from kernelblaster.tools.models import endpoint
from kernelblaster.tools.models.call_failures import failures_of
from kernelblaster.tools.models.chat_models import without_key
from kernelblaster.tools.models.endpoint import Finding, ask_endpoint, require_endpoint
from kernelblaster.tools.models.records import ROLES, ModelPlan

SECRET = "sk-test-7be04c1d93aa42f6"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer().running() as running:
        yield running


def plan(server: OpenAiServer | str, *models: str, **fields: Any) -> ModelPlan:
    url = server if isinstance(server, str) else server.url
    names = models or ("openai:small",)
    roles = {role: names[n % len(names)] for n, role in enumerate(ROLES)}
    return ModelPlan(roles=roles, base_url=url, **fields)


def ask(asked: ModelPlan) -> Finding:
    return asyncio.run(ask_endpoint(asked))


@pytest.mark.parametrize("word", ["none", "EMPTY", "dummy"])
def test_a_word_in_place_of_a_key_stays_in_what_a_model_says(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"almost {word} of it, {SECRET}"
    assert without_key(said) == f"almost {word} of it, [key]"
    monkeypatch.setenv("OPENAI_API_KEY", word)
    assert without_key(said) == said


def test_ten_roles_and_one_question(server: OpenAiServer) -> None:
    server.models = ["small", "large"]
    assert ask(plan(server, "openai:small", "openai:large")).verdict == "good"
    assert [(seen.path, seen.key) for seen in server.seen] == [("/v1/models", SECRET)]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "https://127.0.0.1:9/v1"])
def test_nobody_listens(url: str) -> None:
    found = ask(plan(url))
    assert found.verdict == "bad"
    assert "127.0.0.1:9" in found.words and "connection refused" in found.words
    assert "--base-url" in found.remedy


def test_a_name_that_does_not_resolve() -> None:
    found = ask(plan("http://no-such-host.invalid/v1"))
    assert (found.verdict, "does not resolve" in found.words) == ("bad", True), found


def test_no_tls_there(server: OpenAiServer) -> None:
    found = ask(plan(server.url.replace("http:", "https:")))
    assert found.verdict == "bad" and "TLS" in found.words


def test_who_accepts_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = ask(plan(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", check_seconds=0.3))
    assert found.verdict == "bad" and "does not answer within 0.3 s" in found.words
    assert "KERNELBLASTER_MODEL_CHECK_SECONDS" in found.remedy


def test_an_endpoint_is_not_blamed_for_what_importing_takes(
    server: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, opened, limit = [], endpoint._open, asyncio.timeout

    def noted_open(address: str, seconds: float) -> Any:
        client = opened(address, seconds)
        order.append("imported")
        return client

    def noted_limit(seconds: float | None) -> Any:
        order.append("limited")
        return limit(seconds)

    monkeypatch.setattr(endpoint, "_open", noted_open)
    monkeypatch.setattr(endpoint.asyncio, "timeout", noted_limit)
    assert ask(plan(server)).verdict == "good"
    assert order[:2] == ["imported", "limited"]


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        (Say(f"no such key {SECRET}", status=401), "refuses the key (HTTP 401: no such key [key])"),
        (Say(body="<html>Log in</html>"), "a web page"),
        (Say(body="hello"), "no JSON"),
        (Say("pay", status=429, error_code="insufficient_quota"), "quota is used up"),
    ],
)
def test_what_no_call_could_mend(server: OpenAiServer, listing: Say, words: str) -> None:
    server.listing = listing
    found = ask(plan(server))
    assert found.verdict == "bad" and words in found.words
    assert server.greetings == [], "nothing more was asked"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_who_is_busy_does_not_forbid_the_run(
    server: OpenAiServer, tmp_path: Path, status: int
) -> None:
    server.listing = Say("overloaded", status=status)
    note = asyncio.run(require_endpoint(plan(server), tmp_path))
    assert f"HTTP {status}: overloaded" in note
    server.listing = None
    assert asyncio.run(require_endpoint(plan(server), tmp_path)) == ""


def test_a_model_that_is_neither_listed_nor_known(server: OpenAiServer) -> None:
    found = ask(plan(server, "openai:small", "openai:large"))
    assert found.verdict == "bad"
    assert "no model large (HTTP 404" in found.words and "it lists: small" in found.remedy
    assert [seen.body["model"] for seen in server.greetings] == ["large"]


def test_a_model_refused_with_400(server: OpenAiServer) -> None:
    server.greeting = Say("Invalid model name passed in model=large", status=400)
    assert ask(plan(server, "openai:large")).verdict == "bad"


@pytest.mark.parametrize(
    "greeting", [Say("hi"), Say("empty", status=400), Say("no template", status=500)]
)
def test_a_server_that_takes_any_name(server: OpenAiServer, greeting: Say) -> None:
    server.greeting = greeting
    found = ask(plan(server, "openai:alias"))
    assert found.verdict == "unclear" and "does not list alias" in found.words
    assert "it lists: small" in found.remedy


@pytest.mark.parametrize(("listed", "name"), [("qwen:latest", "qwen"), ("models/flash", "flash")])
def test_names_that_are_listed_otherwise(server: OpenAiServer, listed: str, name: str) -> None:
    server.models = [listed]
    assert ask(plan(server, f"openai:{name}")).verdict == "good"
    assert server.greetings == []


LISTLESS = [
    Say(status=404), Say(status=405), Say(status=403), Say("missing scopes", status=401),
    Say(body="[]"),
]  # fmt: skip


@pytest.mark.parametrize("listing", LISTLESS, ids=str)
def test_a_server_without_a_list_is_asked_by_an_empty_conversation(
    server: OpenAiServer, listing: Say
) -> None:
    server.listing = listing
    assert ask(plan(server)).verdict == "good"
    sent = server.greetings[0].body
    assert sent["messages"] == [] and sent["max_tokens"] == 1
    assert ask(plan(server, "openai:large")).verdict == "bad"
    server.greeting = Say("who?", status=401)
    assert "refuses the key" in ask(plan(server)).words
    server.greeting = Say(body="<html>")
    assert "a web page" in ask(plan(server)).words
    server.greeting = Say(status=503)
    assert ask(plan(server)).verdict == "unclear"


@pytest.mark.parametrize(
    "asked",
    [
        ModelPlan(),
        ModelPlan(roles={"kernel_writer": "import:somewhere:model"}),
        plan("http://127.0.0.1:9/v1", check_seconds=0),
    ],
)
def test_nobody_to_ask(asked: ModelPlan) -> None:
    assert ask(asked).verdict == "good"


def test_who_is_there_again_is_counted_anew(server: OpenAiServer, tmp_path: Path) -> None:
    failures = failures_of(tmp_path, server.url)
    failures.add()
    asyncio.run(require_endpoint(plan(server), tmp_path))
    assert failures.count == 0


def test_only_a_resumed_run_may_go_on_without(tmp_path: Path) -> None:
    gone = plan("http://127.0.0.1:9/v1", on_model_failure="builtin")
    with pytest.raises(UserError, match="cannot be reached"):
        asyncio.run(require_endpoint(gone, tmp_path))
    note = asyncio.run(require_endpoint(gone, tmp_path, resumed=True))
    assert "cannot be reached" in note
    pausing = gone.model_copy(update={"on_model_failure": "pause"})
    with pytest.raises(UserError, match="cannot be reached"):
        asyncio.run(require_endpoint(pausing, tmp_path, resumed=True))
