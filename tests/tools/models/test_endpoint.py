"""A real HTTP endpoint: the three forms of reply, streaming, faults, limits, keys, and kill -9."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from blockbuster import blockbuster_ctx
from langgraph.graph import START, StateGraph
from often_or_seldom import every
from openai_server import OpenAiServer, Say
from places import SUPPORT

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.record import Record
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.models.asking import Asker, ModelUnavailable
from kernelblaster.tools.models.check import check_endpoint
from kernelblaster.tools.models.records import Message, ModelPlan, Price

SECRET = "sk-test-3f9a1c77e2d84b06"
CHILD = SUPPORT / "ask_child.py"


CHOSEN = '{"technique": "tile", "confidence": 0.5}'


class Choice(Record):
    """A choice."""

    technique: Literal["tile", "vectorize"]
    confidence: float


GOOD = {"technique": "tile", "confidence": 0.5}
QUESTION = (Message(role="system", content="You choose."), Message(role="user", content="Choose."))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer().running() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run.sqlite") as opened:
        yield opened


@pytest.fixture
def asker(tmp_path: Path, store: RunStore, server: OpenAiServer) -> Callable[..., Asker]:
    def build(**fields: Any) -> Asker:
        plan = ModelPlan(
            roles={"optimization_selector": "openai:small"},
            **{"base_url": server.url, "first_wait_seconds": 0.0, **fields},
        )
        return Asker(plan, tmp_path, store, ArtifactStore(tmp_path / "artifacts"))

    return build


def choose(asker: Asker, *place: int) -> Any:
    return asyncio.run(asker.structured("optimization_selector", place, QUESTION, Choice))


def say_choice(body: dict[str, Any]) -> Say:
    """Answer in the form that was asked for."""
    if body.get("tools"):
        assert body["tool_choice"] == {"type": "function", "function": {"name": "Choice"}}
        return Say(arguments=GOOD)
    return Say(json.dumps(GOOD))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_by_every_method(
    asker: Any, server: OpenAiServer, store: RunStore, method: str, streaming: bool
) -> None:
    server.otherwise = say_choice
    price = Price(input_per_million=10.0, cached_per_million=1.0, output_per_million=100.0)
    answer = choose(asker(method=method, streaming=streaming, prices={"small": price}))
    assert answer.value == Choice(technique="tile", confidence=0.5)
    assert answer.author == "openai:small"
    row = store.ledger.rows()[0]
    assert (row.tokens_in, row.tokens_cached, row.tokens_out) == (100, 40, 20)
    assert not row.estimated
    assert row.money == pytest.approx((60 * 10 + 40 * 1 + 20 * 100) / 1e6)

    sent = server.chats[0]
    assert sent.key == SECRET and sent.body["model"] == "small"
    assert bool(sent.body.get("stream")) is streaming
    assert "temperature" not in sent.body and "max_tokens" not in sent.body
    form = sent.body.get("response_format")
    if method == "json_schema":
        assert form["json_schema"]["strict"] is True
        assert form["json_schema"]["schema"]["required"] == ["technique", "confidence"]
    elif method == "json_mode":
        assert form == {"type": "json_object"}
        assert '"confidence"' in sent.body["messages"][-1]["content"]
    else:
        assert form is None
        assert sent.body["tools"][0]["function"]["name"] == "Choice"


async def test_who_streams_a_graphs_messages_reads_tokens(
    asker: Any, server: OpenAiServer
) -> None:
    """Not asked for, streaming is done for them alone; role and place come along."""

    async def agent(state: dict[str, str]) -> dict[str, str]:
        found = await asker().structured("optimization_selector", (1, 2), QUESTION, Choice)
        return {"said": found.author}

    graph = StateGraph(dict).add_node("agent", agent).add_edge(START, "agent").compile()
    server.answers = [Say(text=CHOSEN), Say(text=CHOSEN)]
    read = [part async for part in graph.astream({}, stream_mode="messages")]
    assert len(read) > 2 and "".join(message.text for message, _ in read) == CHOSEN
    assert {(about["role"], *about["place"]) for _, about in read} == {
        ("optimization_selector", 1, 2)
    }
    assert server.chats[0].body["stream"] is True
    await asker().structured("optimization_selector", (3,), QUESTION, Choice)
    assert not server.chats[1].body.get("stream")


@pytest.mark.parametrize("streaming", [False, True])
def test_text_with_settings(
    asker: Any, server: OpenAiServer, store: RunStore, streaming: bool
) -> None:
    server.answers = [Say("__global__ void k() {}")]
    one = asker(temperature=0.25, max_output_tokens=77, streaming=streaming)
    answer = asyncio.run(one.text("optimization_selector", (0,), QUESTION, str))
    assert answer.value == "__global__ void k() {}"
    sent = server.chats[0].body
    assert (sent["temperature"], sent["max_tokens"]) == (0.25, 77)
    assert sent["messages"][0] == {"role": "system", "content": "You choose."}
    assert store.ledger.totals().tokens == 120


def test_the_limit_on_a_reply_is_kept_beside_the_form(asker: Any, server: OpenAiServer) -> None:
    server.otherwise = say_choice
    choose(asker(max_output_tokens=77))
    sent = server.chats[0].body
    assert sent["max_tokens"] == 77 and sent["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_server_that_counts_no_tokens(
    asker: Any, server: OpenAiServer, store: RunStore, streaming: bool
) -> None:
    server.answers = [Say(json.dumps(GOOD), usage=False)]
    choose(asker(streaming=streaming))
    row = store.ledger.rows()[0]
    assert row.estimated and row.tokens_out == -(-len(json.dumps(GOOD)) // 4)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize(
    ("bad", "words"),
    every(2, [
        (Say(json.dumps(GOOD)[:20], finish="length"), "cut off"),
        (Say(finish="content_filter"), "content filter"),
        (Say(refusal="I will not."), "refused: I will not."),
        (Say(), "empty"),
        (Say("Certainly! Tile it."), "no JSON object"),
    ]),
)
def test_bad_replies_are_paid_stored_and_asked_again(
    asker: Any, server: OpenAiServer, store: RunStore,
    bad: Say, words: str, method: str, streaming: bool,
) -> None:  # fmt: skip
    if bad.refusal and streaming:
        words = "empty"  # langchain-openai leaves a streamed refusal's words out.
    server.answers = [bad]
    server.otherwise = say_choice
    answer = choose(asker(method=method, streaming=streaming))
    assert answer.value is not None and answer.calls == 2
    first = store.ledger.rows()[0]
    assert first.outcome == "malformed" and words in first.reason
    assert (first.tokens_in, first.tokens_out) == (100, 20)
    assert words in server.chats[1].body["messages"][-1]["content"]


@pytest.mark.parametrize("streaming", [False, True])
def test_broken_arguments_of_a_tool(asker: Any, server: OpenAiServer, streaming: bool) -> None:
    server.answers = [Say(arguments='{"technique": "tile", "confi')]
    server.otherwise = say_choice
    answer = choose(asker(method="function_calling", streaming=streaming))
    assert answer.value is not None and answer.calls == 2


@pytest.mark.parametrize("streaming", [False, True])
def test_faults_in_transport_are_tried_again(
    asker: Any, server: OpenAiServer, store: RunStore, streaming: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelblaster.tools.models.asking.LONGEST_STREAM", 2)
    server.answers = [
        Say(status=429, headers={"retry-after": "0.3"}),
        Say(status=500),
        Say(json.dumps(GOOD), drop=True),
        Say(body="<html>Bad gateway</html>"),
        Say(json.dumps(GOOD), seconds=1.5),
        Say(json.dumps(GOOD), blanks=15),
    ]
    server.otherwise = say_choice
    answer = choose(asker(timeout_seconds=0.5, attempts=7, streaming=streaming))
    assert answer.value is not None and answer.calls == 1
    outcomes = [row.outcome for row in store.ledger.rows()]
    assert outcomes[:2] == ["failed", "failed"] and outcomes[-1] == "answered"
    reasons = [row.reason for row in store.ledger.rows()]
    assert outcomes[2:-1] == ["maybe_paid"] * 4, reasons
    assert f"no whole reply in {1 if streaming else 0.5:g} s" in reasons[-2]
    assert server.chats[1].at - server.chats[0].at >= 0.3


def test_an_endpoint_that_is_not_there(asker: Any, store: RunStore) -> None:
    gone = {"base_url": "http://127.0.0.1:9/v1", "attempts": 2}
    answer = choose(asker(**gone, on_model_failure="builtin"))
    assert answer.value is None and "no connection" in answer.reason
    with pytest.raises(ModelUnavailable, match="small cannot be asked: .*127.0.0.1:9/v1"):
        choose(asker(**gone))
    assert store.ledger.totals().calls == 0


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (Say("no model small", status=404), "no model small; check the model's name"),
        (Say("unknown field", status=400), "--structured-output"),
        (Say("used up", status=429, error_code="insufficient_quota"), "quota is used up"),
    ],
)
def test_wrong_settings_are_one_line(
    asker: Any, server: OpenAiServer, store: RunStore, say: Say, words: str
) -> None:
    server.answers = [say]
    with pytest.raises(UserError, match=words):
        choose(asker())
    assert SECRET not in store.ledger.rows()[0].reason
    assert store.ledger.totals().calls == 0


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_pauses_the_run(
    asker: Any, server: OpenAiServer, store: RunStore, status: int
) -> None:
    server.otherwise = Say(f"bad key {SECRET}", status=status)
    with pytest.raises(ModelUnavailable, match=r"bad key \[key\]; check the key"):
        choose(asker())
    assert len(server.chats) == 3, "one refusal may be a gateway's mood"
    assert SECRET not in store.ledger.rows()[0].reason
    assert store.ledger.totals().calls == 0


def test_one_refusal_is_not_the_end(asker: Any, server: OpenAiServer) -> None:
    server.answers = [Say("who are you?", status=401)]
    server.otherwise = say_choice
    assert choose(asker()).value is not None and len(server.chats) == 2


def test_who_falls_silent_is_asked_whether_it_is_there(
    asker: Any, server: OpenAiServer, store: RunStore
) -> None:
    """A slow reply is the call's fault; where the list does not come either, the endpoint's."""
    server.otherwise = Say(json.dumps(GOOD), seconds=1.0)
    answer = choose(asker(timeout_seconds=0.2, attempts=2), 0)
    assert answer.value is None and "timed out" in answer.reason and len(server.chats) == 2
    server.listing = Say(seconds=1.0, body="{}")
    with pytest.raises(ModelUnavailable, match="does not answer within 0.3 s"):
        choose(asker(timeout_seconds=0.2, check_seconds=0.3, attempts=2), 1)
    assert len(server.chats) == 3, "it was not waited for a second time"


def test_two_rollouts_find_the_same_endpoint_gone(asker: Any, server: OpenAiServer) -> None:
    server.otherwise = Say("bad key", status=401)

    async def ask_both() -> list[Any]:
        one, other = asker(), asker()
        asks = [each.text("optimization_selector", (n,), QUESTION, str)
                for n, each in enumerate((one, other))]  # fmt: skip
        return await asyncio.gather(*asks, return_exceptions=True)

    ended = asyncio.run(ask_both())
    assert all(isinstance(each, ModelUnavailable) for each in ended)
    assert 3 <= len(server.chats) <= 4, "both count the failures of both"


def test_so_many_calls_at_a_time(asker: Any, server: OpenAiServer) -> None:
    server.otherwise = Say("fine", seconds=0.2)
    one = asker(concurrency=2)

    async def ask_all() -> None:
        asks = [one.text("optimization_selector", (n,), QUESTION, str) for n in range(6)]
        await asyncio.gather(*asks)

    asyncio.run(ask_all())
    assert len(server.chats) == 6 and server.most_at_once == 2


def test_so_many_calls_a_minute(asker: Any, server: OpenAiServer) -> None:
    server.otherwise = Say("fine")
    one = asker(requests_per_minute=240.0)

    async def ask_all() -> None:
        asks = [one.text("optimization_selector", (n,), QUESTION, str) for n in range(4)]
        await asyncio.gather(*asks)

    began = time.monotonic()
    asyncio.run(ask_all())
    # Sent a quarter of a second apart; a busy machine may hold the first back, and then all.
    assert len(server.chats) == 4 and time.monotonic() - began > 0.7


def test_event_loops_one_after_the_other(asker: Any, server: OpenAiServer) -> None:
    """Runs resumed together each have a loop of their own; no connection outlives its loop."""
    server.otherwise = say_choice
    one = asker()
    for place in range(3):
        assert choose(one, place).value is not None


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_nothing_blocks_the_event_loop(
    asker: Any, server: OpenAiServer, method: str, streaming: bool
) -> None:
    """`langgraph dev` raises on blocking calls by this very library."""
    server.answers = [Say(status=500), Say("junk")]
    server.otherwise = say_choice
    one = asker(method=method, streaming=streaming, requests_per_minute=60_000.0)

    async def ask() -> Any:
        with blockbuster_ctx():
            return await one.structured("optimization_selector", (0,), QUESTION, Choice)

    assert asyncio.run(ask()).value is not None


def test_no_key_reaches_the_run_directory(
    asker: Any, server: OpenAiServer, tmp_path: Path
) -> None:
    server.answers = [Say(f"your key is {SECRET}"), Say(f"bad: {SECRET}", status=500)]
    server.otherwise = say_choice
    choose(asker())
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) > 4
    assert not [path for path in found if SECRET.encode() in path.read_bytes()]


def ask_in_child(directory: Path, server: OpenAiServer, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(directory), server.url, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def numbered(server: OpenAiServer, seconds: float) -> Callable[[dict[str, Any]], Say]:
    return lambda body: Say(f"answer {len(server.chats)}", seconds=seconds)


@pytest.mark.seldom
def test_kill_in_the_middle_of_a_call(tmp_path: Path, server: OpenAiServer) -> None:
    server.otherwise = numbered(server, 0.3)
    child = ask_in_child(tmp_path, server, 3)
    deadline = time.monotonic() + 60
    while len(server.chats) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert len(server.chats) == 2

    output, _ = ask_in_child(tmp_path, server, 3).communicate(timeout=60)
    assert output.splitlines() == ["answer 1", "answer 3", "answer 4"]
    asked = [seen.body["messages"][-1]["content"] for seen in server.chats]
    assert asked == ["question 0", "question 1", "question 1", "question 2"]
    with RunStore(tmp_path / "run.sqlite") as store:
        rows = [(row.place, row.attempt, row.outcome) for row in store.ledger.rows()]
        assert rows == [
            ("[0]", 0, "answered"),
            ("[1]", 0, "maybe_paid"),
            ("[1]", 1, "answered"),
            ("[2]", 0, "answered"),
        ]
        assert store.ledger.totals().unfinished == 1


def test_kill_at_any_moment_pays_for_no_finished_call_again(
    tmp_path: Path, server: OpenAiServer
) -> None:
    server.otherwise = numbered(server, 0.05)
    kills, count = 0, 12
    while True:
        child = ask_in_child(tmp_path, server, count)
        before = len(server.chats)
        while len(server.chats) == before and child.poll() is None:
            time.sleep(0.005)
        try:
            # Each begins a process: three kills, then it gets through.
            output, _ = child.communicate(timeout=0.02 + 0.06 * kills if kills < 3 else 60)
            break
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.communicate()
            kills += 1
    assert kills == 3
    with RunStore(tmp_path / "run.sqlite") as store:
        rows = store.ledger.rows()
    answered = [row for row in rows if row.outcome == "answered"]
    assert [row.place for row in answered] == [f"[{place}]" for place in range(count)]
    # Every call that reached the server is in the books, and only kills made more than needed.
    assert len(server.chats) <= len(rows) <= count + kills
    assert all(row.outcome in ("answered", "maybe_paid") for row in rows)
    assert len(output.splitlines()) == count


def test_doctor_looks_at_the_endpoint(server: OpenAiServer) -> None:
    def check(model: str, **fields: Any) -> Any:
        plan = ModelPlan(roles={"kernel_writer": model}, **{"base_url": server.url, **fields})
        return asyncio.run(check_endpoint(plan))

    good = check("openai:small")
    assert good.passed and server.url in good.finding
    unknown = check("openai:large")
    assert not unknown.passed and "large" in unknown.finding and "small" in unknown.remedy
    absent = check("openai:small", base_url="http://127.0.0.1:9/v1")
    assert not absent.passed and "9/v1" in absent.finding and SECRET not in str(absent)
    builtin = asyncio.run(check_endpoint(ModelPlan()))
    assert builtin.passed and "no key needed" in builtin.finding


def test_doctor_misses_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    find = "kernelblaster.tools.models.chat_models.importlib.util.find_spec"
    monkeypatch.setattr(find, lambda _: None)
    check = asyncio.run(check_endpoint(ModelPlan(roles={"kernel_writer": "openai:gpt-5"})))
    assert not check.passed and "OPENAI_API_KEY" in check.finding
