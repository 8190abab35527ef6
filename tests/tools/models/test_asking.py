"""Asking: replies of every kind, asking again, replay, caps, and what goes into the ledger."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from scripted_chat_model import (
    CURRENT,
    ScriptedChatModel,
    cut_off,
    failing,
    http_error,
    refusal,
    usage_of,
    use,
)

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.record import Record
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.models.asking import (
    Asker,
    BudgetReached,
    MalformedReply,
    ModelUnavailable,
    Questions,
    estimate_tokens,
)
from kernelblaster.tools.models.budgets import write_budgets
from kernelblaster.tools.models.records import Answer, Budgets, Message, Price, Role
from kernelblaster.tools.models.reply_forms import find_object, strict_schema


class Verdict(Record):
    """A verdict."""

    technique: Literal["tile", "vectorize"]
    confidence: float
    notes: tuple[str, ...] = ()


GOOD = {"technique": "tile", "confidence": 0.5, "notes": ["reads twice"]}
QUESTION = (Message(role="system", content="You judge."), Message(role="user", content="Judge."))


def refused() -> ConnectionError:
    """What a client raises where nobody listens."""
    return ConnectionRefusedError("connect call failed")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run.sqlite") as opened:
        yield opened


@pytest.fixture
def asker(tmp_path: Path, store: RunStore) -> Callable[..., Asker]:
    artifacts = ArtifactStore(tmp_path / "artifacts")
    return lambda plan, *shared: Asker(plan, tmp_path, store, artifacts, *shared)


@pytest.fixture
def judge(
    asker: Callable[..., Asker], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer[Verdict]]:
    """Ask a scripted model for a Verdict."""

    def ask(
        model: ScriptedChatModel, *place: int | str, role: Role = "optimization_selector",
        **fields: Any,
    ) -> Answer[Verdict]:  # fmt: skip
        plan = use(monkeypatch, model, **{"first_wait_seconds": 0.0, **fields})
        return asyncio.run(
            asker(plan).structured(role, place or (0,), QUESTION, Verdict)
        )

    return ask


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_a_good_reply_is_a_record(judge: Any, store: RunStore, method: str) -> None:
    model = ScriptedChatModel([GOOD])
    answer = judge(model, method=method)
    assert answer.value == Verdict(technique="tile", confidence=0.5, notes=("reads twice",))
    assert (answer.author, answer.reason, answer.calls) == (CURRENT, "", 1)
    assert answer.reply_sha256 == store.ledger.rows()[0].reply_sha256
    assert model.calls[0].role == "optimization_selector"
    tools = model.calls[0].options.get("tools")
    if method == "function_calling":
        assert tools[0]["function"]["name"] == "Verdict"
        assert model.calls[0].options["tool_choice"] == "Verdict"
    else:
        assert tools is None
        assert '"technique"' in model.calls[0].prompt, "the schema is in the prompt"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"Here it is:\n\n{json.dumps(GOOD, indent=2)}\n\nAnything else?",
        f"```json\n{json.dumps(GOOD)}\n```",
        f"The loop `for (;;) {{}}` is slow.\n```json\n{json.dumps(GOOD)}\n```\nGood luck.",
        f"<think>\nMaybe {{\"technique\": \"vectorize\"}}?\n</think>\n{json.dumps(GOOD)}",
        f"Maybe a tile? </think>{json.dumps(GOOD)}",
    ],
)
def test_prose_fences_and_thoughts_around_the_object(judge: Any, text: str) -> None:
    answer = judge(ScriptedChatModel([text]))
    assert answer.value is not None and answer.value.technique == "tile"
    assert answer.calls == 1


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("I think tiling is best.", "no JSON object"),
        ("", "empty"),
        ("   \n", "empty"),
        ('{"technique": "tile", "confidence": }', "malformed at line 1"),
        ('{"technique": "tile"', "malformed at line 1"),
        ('["tile"]', "not an object"),
        ({"technique": "tile"}, "confidence: Field required"),
        ({**GOOD, "technique": "cheat"}, "technique: Input should be 'tile' or 'vectorize'"),
        ({**GOOD, "extra": 1}, "extra: Extra inputs are not permitted"),
        ('{"technique": "tile", "confidence": NaN}', "NaN is no JSON number"),
        ('{"technique": "tile", "confidence": 1e999}', "1e999 is no JSON number"),
        ('{"technique": "tile", "confidence": 1, "notes": ["\\ud800"]}', "cannot be read|Invalid"),
        ('{"a": 1} and {"b": 2}', "2 JSON objects"),
        (refusal("I will not."), "refused: I will not."),
        (cut_off(json.dumps(GOOD)), "cut off"),
        (AIMessage("", response_metadata={"finish_reason": "content_filter"}), "content filter"),
    ],
)
def test_a_malformed_reply_is_asked_again_with_the_reason(
    judge: Any, store: RunStore, reply: Any, words: str
) -> None:
    model = ScriptedChatModel([reply, GOOD])
    answer = judge(model)
    assert answer.value is not None and answer.calls == 2
    first, second = store.ledger.rows()
    assert (first.outcome, second.outcome) == ("malformed", "answered")
    assert re.search(words, first.reason), first.reason
    told = model.calls[1].messages
    assert [message.type for message in told] == ["system", "human", "ai", "human"]
    assert re.search(words, str(told[-1].content))


def test_asking_again_has_an_end(judge: Any, store: RunStore) -> None:
    model = ScriptedChatModel(otherwise="no")
    answer = judge(model, reasks=2)
    assert answer.value is None and answer.calls == 3 and len(model.calls) == 3
    assert answer.reason == "malformed reply: the reply holds no JSON object"
    assert answer.reply_sha256 == store.ledger.rows()[-1].reply_sha256
    assert store.ledger.totals().calls == 3


def test_a_tool_that_is_called_twice_or_with_broken_arguments(judge: Any) -> None:
    def call(arguments: str) -> dict[str, Any]:
        return {"function": {"name": "Verdict", "arguments": arguments}, "id": "1", "type": "x"}

    twice = AIMessage("", additional_kwargs={"tool_calls": [call("{}"), call('{"a": 1}')]})
    broken = AIMessage("", additional_kwargs={"tool_calls": [call('{"technique": "ti')]})
    model = ScriptedChatModel([twice, broken, GOOD])
    answer = judge(model, method="function_calling")
    assert answer.value is not None and answer.calls == 3
    assert "called 2 times" in model.calls[1].prompt
    assert "malformed at line 1" in model.calls[2].prompt


def test_prose_instead_of_a_tool_call_is_read_too(judge: Any) -> None:
    model = ScriptedChatModel([f"I would say {json.dumps(GOOD)}."])
    assert judge(model, method="function_calling").value is not None


def test_text_goes_through_the_callers_reader(asker: Any, monkeypatch: Any) -> None:
    def read(text: str) -> int:
        if not text.isdecimal():
            raise MalformedReply("write digits only")
        return int(text)

    model = ScriptedChatModel(["forty-two", "42"])
    answer = asyncio.run(asker(use(monkeypatch, model)).text("kernel_writer", (1,), QUESTION, read))
    assert (answer.value, answer.calls) == (42, 2)
    assert "write digits only" in model.calls[1].prompt
    assert "forty-two" in model.calls[1].prompt


def test_a_finished_call_is_never_paid_again(judge: Any, store: RunStore) -> None:
    first = judge(ScriptedChatModel(["junk", GOOD]), 0, 1)
    nobody = ScriptedChatModel()
    second = judge(nobody, 0, 1)
    assert second == first and nobody.calls == []
    assert store.ledger.totals().calls == 2


def test_two_places_get_two_samples_of_one_prompt(
    asker: Any, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(["one", "two"])
    plan = use(monkeypatch, model)
    left, right = (
        asyncio.run(asker(plan).text("kernel_writer", (0, rollout), QUESTION, str))
        for rollout in (0, 1)
    )
    assert left.prompt_sha256 == right.prompt_sha256
    assert (left.value, right.value) == ("one", "two")
    assert store.ledger.totals().calls == 2


def test_a_question_to_one_who_judges_is_asked_once_in_a_run(judge: Any, store: RunStore) -> None:
    """At another place its answer is read back, and the ledger says that nothing was sent."""
    model = ScriptedChatModel(["junk", GOOD])
    first, second = (judge(model, 0, place, role="soft_verifier") for place in (0, 1))
    assert (second.value, second.reply_sha256) == (first.value, first.reply_sha256)
    assert len(model.calls) == 2, "the junk, and what was asked for in its place"
    assert [row.outcome for row in store.ledger.rows()][-1] == "reused"
    (spent,) = store.ledger.by_role()
    assert (spent.calls, spent.malformed, spent.reused, spent.unanswered) == (2, 1, 2, 0)
    assert store.ledger.totals().calls == 2
    again = judge(ScriptedChatModel(), 0, 1, role="soft_verifier")
    assert again.value == first.value and len(store.ledger.rows()) == 4


def test_who_asks_the_same_at_the_same_time_waits_for_one_answer(
    asker: Any, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel([GOOD])
    questions = Questions()
    one, other = (asker(use(monkeypatch, model), questions) for _ in range(2))

    async def both() -> list[Answer[Verdict]]:
        return await asyncio.gather(
            *(each.structured("state_extractor", (0, place), QUESTION, Verdict)
              for place, each in enumerate((one, other)))
        )  # fmt: skip

    left, right = asyncio.run(both())
    assert left.value == right.value and len(model.calls) == 1


def test_another_prompt_at_the_same_place_is_another_call(asker: Any, monkeypatch: Any) -> None:
    model = ScriptedChatModel(["one", "two"])
    plan = use(monkeypatch, model)
    other = (Message(role="user", content="Something else."),)
    replies = [
        asyncio.run(asker(plan).text("kernel_writer", (0,), messages, str))
        for messages in (QUESTION, other, QUESTION, other)
    ]
    assert [reply.value for reply in replies] == ["one", "two", "one", "two"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_transport_failures_are_tried_again(judge: Any, store: RunStore, status: int) -> None:
    model = ScriptedChatModel(failing(2, lambda: http_error(status), GOOD))
    answer = judge(model)
    assert answer.value is not None and answer.calls == 1
    outcomes = [row.outcome for row in store.ledger.rows()]
    assert outcomes == ["failed", "failed", "answered"]
    assert store.ledger.totals().calls == 1


@pytest.mark.parametrize(
    "error", [TimeoutError("slow"), TimeoutError(), ConnectionResetError("dropped")]
)
def test_after_the_last_try_there_is_no_value(
    judge: Any, store: RunStore, error: Exception
) -> None:
    model = ScriptedChatModel(otherwise=error)
    answer = judge(model, attempts=3)
    assert answer.value is None and (str(error) or "it timed out") in answer.reason
    assert len(model.calls) == 3
    assert [row.outcome for row in store.ledger.rows()] == ["maybe_paid"] * 3


def test_retry_after_is_honoured(judge: Any, monkeypatch: Any) -> None:
    waited: list[float] = []

    def report(kind: str, **facts: Any) -> None:
        if kind == "trying_again":
            waited.append(facts["seconds"])

    monkeypatch.setattr("kernelblaster.tools.models.asking.report_progress", report)
    errors = [http_error(429, retry_after="0.2"), http_error(503, retry_after="0.1")]
    began = time.monotonic()
    judge(ScriptedChatModel([*errors, GOOD]))
    assert waited == [0.2, 0.1]
    assert time.monotonic() - began >= 0.3


def test_who_asks_to_wait_for_an_hour_is_not_asked_again(judge: Any) -> None:
    model = ScriptedChatModel([http_error(429, retry_after="3600")])
    answer = judge(model)
    assert answer.value is None and len(model.calls) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (http_error(404, text="no such model"), "model's name"),
        (http_error(400, text="response_format is not supported"), "--structured-output"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(
    judge: Any, store: RunStore, error: Exception, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        judge(ScriptedChatModel([error]))
    assert store.ledger.totals().calls == 0


@pytest.mark.parametrize("error", [http_error(401, text="Incorrect API key"), refused()])
def test_an_endpoint_that_is_gone_pauses_the_run(
    judge: Any, store: RunStore, tmp_path: Path, error: Exception
) -> None:
    model = ScriptedChatModel(otherwise=error)
    (tmp_path / "checkpoints.sqlite").touch()
    with pytest.raises(ModelUnavailable, match=f"{re.escape(CURRENT)}.*resume {tmp_path}"):
        judge(model, attempts=2)
    tries = 1 if "API key" in str(error) else 2
    assert len(model.calls) == 3 * tries
    assert {row.outcome for row in store.ledger.rows()} == {"failed"}
    with pytest.raises(ModelUnavailable):
        judge(model, attempts=2)
    assert len(model.calls) == 3 * tries + 1, "known to be gone: one try"
    assert judge(ScriptedChatModel([GOOD])).value is not None
    failing_once = ScriptedChatModel([error, error, GOOD])
    assert judge(failing_once, 1).value is not None, "an answer begins the count anew"


def test_the_built_in_reasoner_stands_in_where_that_is_chosen(judge: Any) -> None:
    model = ScriptedChatModel(otherwise=refused())
    answers = [judge(model, n, attempts=2, on_model_failure="builtin") for n in range(5)]
    assert all(a.value is None and "connection refused" in a.reason for a in answers)
    assert len(model.calls) == 2 + 2 + 2 + 1 + 1, "once it is known to be gone, one try a call"


@pytest.mark.parametrize(
    "error", [http_error(503), http_error(400, text="context length exceeded"), TimeoutError("x")]
)
def test_other_failures_leave_the_place_to_the_built_in_reasoner(
    judge: Any, error: Exception
) -> None:
    answers = [judge(ScriptedChatModel(otherwise=error), n, attempts=1) for n in range(4)]
    assert [answer.value for answer in answers] == [None] * 4


def test_a_prompt_that_is_too_long_is_no_fault_of_the_setting(judge: Any) -> None:
    error = http_error(400, text="This model's maximum context length is 8192 tokens")
    answer = judge(ScriptedChatModel([error]))
    assert answer.value is None and "context length" in answer.reason


def test_tokens_and_money_come_from_the_server(judge: Any, store: RunStore) -> None:
    message = AIMessage(json.dumps(GOOD), usage_metadata=usage_of(1000, 200, cached=600))
    price = Price(input_per_million=10.0, cached_per_million=1.0, output_per_million=100.0)
    judge(ScriptedChatModel([message]), prices={CURRENT: price})
    row = store.ledger.rows()[0]
    assert (row.tokens_in, row.tokens_cached, row.tokens_out) == (1000, 600, 200)
    assert row.estimated is False
    assert row.money == pytest.approx((400 * 10 + 600 * 1 + 200 * 100) / 1e6)


@pytest.mark.parametrize("usage", [None, usage_of(-5, 10), usage_of(10, -5)])
def test_tokens_are_estimated_where_the_server_counts_none(
    judge: Any, store: RunStore, usage: Any
) -> None:
    text = json.dumps(GOOD)
    model = ScriptedChatModel([AIMessage(text, usage_metadata=usage)], usage=False)
    judge(model)
    row = store.ledger.rows()[0]
    assert row.estimated is True and row.money is None
    assert row.tokens_out == estimate_tokens(text) == -(-len(text) // 4)
    prompt = sum(estimate_tokens(str(message.content)) for message in model.calls[0].messages)
    assert row.tokens_in == prompt


def test_a_cap_stops_before_the_call(judge: Any, store: RunStore, tmp_path: Path) -> None:
    write_budgets(tmp_path, Budgets(calls=2))
    (tmp_path / "checkpoints.sqlite").touch()
    judge(ScriptedChatModel(["junk", GOOD]), 0)
    model = ScriptedChatModel([GOOD])
    with pytest.raises(BudgetReached, match="2 calls is reached .2 made.*--max-calls"):
        judge(model, 1)
    assert model.calls == []
    judge(ScriptedChatModel(), 0)  # What is paid already is still there.
    write_budgets(tmp_path, Budgets(calls=3))
    assert judge(model, 1).value is not None


def test_calls_under_way_count_against_the_cap(
    asker: Any, store: RunStore, monkeypatch: Any, tmp_path: Path
) -> None:
    write_budgets(tmp_path, Budgets(calls=2))
    one = asker(use(monkeypatch, ScriptedChatModel(otherwise="fine"), concurrency=5))

    async def ask_all() -> list[Any]:
        asks = [one.text("kernel_writer", (place,), QUESTION, str) for place in range(5)]
        return await asyncio.gather(*asks, return_exceptions=True)

    ended = asyncio.run(ask_all())
    assert sum(isinstance(each, Answer) for each in ended) == 2
    assert sum(isinstance(each, BudgetReached) for each in ended) == 3
    assert store.ledger.totals().calls == 2


def test_money_cannot_be_capped_without_a_price(judge: Any, tmp_path: Path) -> None:
    write_budgets(tmp_path, Budgets(money=1.0))
    with pytest.raises(UserError, match="KERNELBLASTER_PRICES"):
        judge(ScriptedChatModel([GOOD]))


def test_a_cancelled_call_is_noted(asker: Any, store: RunStore, monkeypatch: Any) -> None:
    class Slow(ScriptedChatModel):
        async def _agenerate(self, *arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(60)

    async def ask() -> None:
        one = asker(use(monkeypatch, Slow())).text("kernel_writer", (0,), QUESTION, str)
        task = asyncio.create_task(one)
        while not store.ledger.rows():
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())
    assert [(row.outcome, row.reason) for row in store.ledger.rows()] == [
        ("maybe_paid", "cancelled")
    ]


def test_a_builtin_role_has_no_model_to_ask(asker: Any, monkeypatch: Any) -> None:
    plan = use(monkeypatch, ScriptedChatModel(), "kernel_writer")
    with pytest.raises(ValueError, match="no model is set for gap_analysis"):
        asyncio.run(asker(plan).text("gap_analysis", (0,), QUESTION, str))


PLACES = itertools.count()

json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
verdict_like = st.fixed_dictionaries(
    {}, optional={"technique": json_like, "confidence": json_like, "notes": json_like}
)
any_text = st.text(st.characters(codec=None), max_size=200)
replies = (
    any_text
    | verdict_like.map(json.dumps)
    | st.tuples(any_text, verdict_like.map(json.dumps), any_text).map("".join)
    | st.sampled_from(["{" * 5000, '{"a":' * 5000, "[" * 100_000, "```\n" * 500, "<think>" * 300])
)


@settings(
    max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(reply=replies, method=st.sampled_from(["json_schema", "function_calling"]))
def test_no_reply_of_any_content_does_harm(judge: Any, reply: str, method: str) -> None:
    """Whatever comes: a record of the type asked for, or a reason."""
    model = ScriptedChatModel(otherwise=reply)
    answer = judge(model, next(PLACES), reasks=1, method=method)
    assert len(model.calls) == answer.calls, "no example is answered from another's ledger rows"
    if answer.value is None:
        assert answer.reason.startswith("malformed reply: ")
    else:
        assert isinstance(answer.value, Verdict)


def test_the_strict_schema_requires_all_and_allows_no_more() -> None:
    schema, strict = strict_schema(Verdict)
    assert strict
    assert schema["required"] == ["technique", "confidence", "notes"]
    assert schema["additionalProperties"] is False
    assert "default" not in json.dumps(schema)


def test_free_keys_do_not_fit_the_strict_form() -> None:
    class Free(Record):
        settings: dict[str, int]

    assert strict_schema(Free)[1] is False


def test_code_braces_are_no_reply() -> None:
    assert find_object('int f() {} then {"a": 1}') == {"a": 1}
    with pytest.raises(MalformedReply):
        find_object("void f() { g(); }")
