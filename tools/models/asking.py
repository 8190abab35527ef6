"""Ask a model in a role, within the run's caps, and never pay twice for the same call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from ...harness.errors import UserError
from ...harness.records.identity import sha256_of
from ...memory.run.artifacts import ArtifactStore
from ...memory.run.directory import how_to_go_on
from ...memory.run.ledger import CallRow, Usage
from ...memory.run.run_store import RunStore
from ..progress import report_progress
from .budgets import read_budgets, require_call
from .call_failures import IN_A_ROW, CallFailed, FailuresInARow, explained, failures_of
from .chat_models import opened_model, priced, turnstile_of
from .endpoint import ask_endpoint
from .fitting import fitted
from .pauses import BudgetReached, ModelUnavailable
from .records import ANSWERED_ONCE, BUILTIN, Answer, Message, ModelPlan, Role, ToolCalls
from .reply_forms import (
    Form,
    MalformedReply,
    RawReply,
    as_langchain,
    bound,
    raw_reply,
    with_schema,
)

__all__ = [
    "Asker", "BudgetReached", "MalformedReply", "ModelUnavailable", "Questions", "estimate_tokens",
]  # fmt: skip

Reply = TypeVar("Reply", bound=BaseModel)
Value = TypeVar("Value")

Questions: TypeAlias = WeakValueDictionary[str, asyncio.Lock]
"""Questions that are being asked, each with the lock that the others wait for."""

LONGEST_WAIT_SECONDS = 60.0
"""Between two tries, where the server does not say how long."""
ENDPOINT_SECONDS = 15.0
"""After so long, a call that does not reach its endpoint is not tried again by itself."""
LONGEST_STREAM = 12
"""Times the limit of a piece that a reply in pieces may take as a whole: some never end."""
WAITS_BEFORE_ANEW = 5
"""First waits before a call is begun anew whose endpoint was not reached."""
REPLY_SHOWN = 60_000
"""Characters of a malformed reply that go back into the conversation."""


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is: a quarter of its characters, rounded up."""
    return -(-len(text) // 4)


class Asker:
    """Asks the models of one run. What counts as the same call: role, place, number of the ask,
    model and prompt. Its reply is stored before it is looked at; asked again, it is read back.

    Built by `Workspace.asker`. Two places get two samples, be their prompts the same; but of roles
    that read and judge (ANSWERED_ONCE) one question has one answer in a run.
    """

    def __init__(
        self,
        models: ModelPlan,
        directory: Path,
        store: RunStore,
        artifacts: ArtifactStore,
        questions: Questions | None = None,
    ) -> None:
        """Ask for a run; `questions` are those under way, which all of its askers share."""
        self.models = models
        self._questions = Questions() if questions is None else questions
        self._directory = directory
        self._ledger = store.ledger
        self._artifacts = artifacts

    async def structured(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: Sequence[Message],
        reply: type[Reply],
    ) -> Answer[Reply]:
        """Return a reply of a pydantic type, by the plan's method.

        A reply that does not fit goes back to the model with the reason, `reasks` times at most.

        Raises:
            BudgetReached: a cap keeps the next call from being made.
            ModelUnavailable: the endpoint is gone or refuses the key, and nobody may stand in.
            UserError: the endpoint's setting is wrong, or the disk is full.
        """
        prompt = with_schema(messages, self.models, self.models.model_of(role), reply)
        return await self._ask(role, place, prompt, lambda raw: raw.structured(reply), reply)

    async def text(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: Sequence[Message],
        read: Callable[[str], Value],
    ) -> Answer[Value]:
        """Return what `read` makes of the reply's text.

        `read` raises MalformedReply to have the model asked again with that reason.

        Raises:
            BudgetReached: a cap keeps the next call from being made.
            ModelUnavailable: the endpoint is gone or refuses the key, and nobody may stand in.
            UserError: the endpoint's setting is wrong, or the disk is full.
        """
        return await self._ask(role, place, tuple(messages), lambda raw: read(raw.words()), None)

    async def calling(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        read: Callable[[str], Value],
        *,
        more: bool,
    ) -> Answer[ToolCalls | Value]:
        """Return the tool calls of a reply, or, of one without any, what `read` makes of its text.

        Args:
            role: who is asked.
            place: where in the run.
            messages: the conversation, earlier calls and their answers among it.
            tools: schemas of the tools, as OpenAI has them.
            more: whether they may still be called; else only a text will do.
            read: raises MalformedReply to have the model asked again with that reason.

        Raises:
            BudgetReached: a cap keeps the next call from being made.
            ModelUnavailable: the endpoint is gone or refuses the key, and nobody may stand in.
            UserError: the endpoint's setting is wrong, or the disk is full.
        """

        def turn(raw: RawReply) -> ToolCalls | Value:
            if not raw.calls:
                return read(raw.words())
            if not more:
                raise MalformedReply("no more tools may be called: give the answer itself")
            raw.require_whole()
            return ToolCalls(said=raw.text, calls=raw.calls)

        return await self._ask(role, place, tuple(messages), turn, tools)

    async def _ask(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: tuple[Message, ...],
        read: Callable[[RawReply], Value],
        form: Form,
    ) -> Answer[Value]:
        model = self.models.model_of(role)
        if model == BUILTIN:
            raise ValueError(f"no model is set for {role}")
        reason, first_prompt = "", ""
        reply_sha256: str | None = None
        for ask in range(self.models.reasks + 1):
            sent = fitted(messages, self.models.context_of(role))
            prompt = await asyncio.to_thread(self._artifacts.put_text, _as_json(sent))
            first_prompt = first_prompt or prompt
            call = _Call(role, place, ask, model, prompt)
            try:
                async with self._one_at_a_time(call):
                    reply_sha256, raw = await self._reply(call, sent, form)
            except CallFailed as failed:
                _tell_stand_in(call, failed.reason)
                return Answer(
                    author=model, reason=failed.reason, prompt_sha256=first_prompt,
                    reply_sha256=reply_sha256, calls=ask + 1,
                )  # fmt: skip
            try:
                value = read(raw)
            except (MalformedReply, ValidationError) as error:
                reason = " ".join(str(error).split())
                await asyncio.to_thread(self._ledger.malformed, call.key, reason)
                report_progress("malformed", role=role, place=list(place), reason=reason)
                messages = (*messages, *_again(raw, str(error)))
                continue
            return Answer(
                value=value, author=model, prompt_sha256=first_prompt,
                reply_sha256=reply_sha256, calls=ask + 1,
            )  # fmt: skip
        reason = f"malformed reply: {reason}"
        _tell_stand_in(call, reason)
        return Answer(
            author=model, reason=reason, prompt_sha256=first_prompt,
            reply_sha256=reply_sha256, calls=self.models.reasks + 1,
        )  # fmt: skip

    async def _reply(
        self, call: _Call, messages: tuple[Message, ...], form: Form
    ) -> tuple[str, RawReply]:
        """Return the stored reply of a call, or make it; raises CallFailed when tries run out."""
        stored = await asyncio.to_thread(self._known, call)
        if stored is not None and stored.reply_sha256 is not None:
            text = await asyncio.to_thread(self._artifacts.get_text, stored.reply_sha256)
            return stored.reply_sha256, RawReply.model_validate_json(text)
        failures = failures_of(self._directory, self.models.endpoint_of(call.model))
        for number in range(1, IN_A_ROW + 1):
            try:
                reply = await self._tries(call, messages, form, failures)
            except CallFailed as failed:
                if failed.blame == "call":
                    failures.forget()
                    raise
                failures.add()
                if self.models.on_model_failure == "builtin":
                    raise
                if failures.gone or number == IN_A_ROW:
                    how = how_to_go_on(self._directory, "", '"again"')
                    raise ModelUnavailable(
                        f"{call.model} cannot be asked: {failed.reason}; the place is saved, go "
                        f"on with: {how}"
                    ) from failed
                seconds = WAITS_BEFORE_ANEW * self.models.first_wait_seconds
                _tell_wait(call, str(failed), seconds)
                await asyncio.sleep(seconds)
            else:
                failures.forget()
                return reply
        raise AssertionError("the last failure ends the loop")

    def _known(self, call: _Call) -> CallRow | None:
        """Return the row that holds the reply to a call, its own or one of the same question."""
        own = self._ledger.reply(call.key)
        if own is not None or call.role not in ANSWERED_ONCE:
            return own
        same = self._ledger.same_question(call.role, call.model, call.prompt_sha256)
        if same is not None:
            self._ledger.reused(call.key, json.dumps(call.place), same)
            report_progress("reused", role=call.role, place=list(call.place))
        return same

    @asynccontextmanager
    async def _one_at_a_time(self, call: _Call) -> AsyncIterator[None]:
        """Have who asks the same question wait for its answer, where one answer is enough."""
        if call.role not in ANSWERED_ONCE:
            yield
            return
        question = sha256_of(call.role, call.model, call.prompt_sha256)
        turn = self._questions.setdefault(question, asyncio.Lock())
        async with turn:
            yield

    async def _tries(
        self,
        call: _Call,
        messages: tuple[Message, ...],
        form: Form,
        failures: FailuresInARow,
    ) -> tuple[str, RawReply]:
        """Make a call, in several tries where its failures allow that."""
        if failures.count:  # Quicker than a call, and free.
            gone = await self._unanswered(call)
            if gone:
                raise CallFailed(gone, again=False, maybe_paid=False, blame="endpoint")

        def again(error: BaseException) -> bool:
            if not isinstance(error, CallFailed):
                return False
            return error.again and not (error.blame == "endpoint" and failures.gone)

        last_attempt = stop_after_attempt(self.models.attempts)
        retrying = AsyncRetrying(
            retry=retry_if_exception(again),
            stop=lambda state: last_attempt(state) or _endpoint_had_time(state),
            wait=self._wait,
            before_sleep=lambda state: _tell_wait(
                call, str(_error(state)), state.upcoming_sleep
            ),
            reraise=True,
        )
        turnstile = await asyncio.to_thread(
            turnstile_of,
            self.models.base_url,
            self.models.concurrency,
            self.models.requests_per_minute,
        )
        async for attempt in retrying:
            with attempt:
                async with turnstile.turn():
                    return await self._send(call, messages, form)
        raise AssertionError("tenacity ended without a reply or an error")

    async def _unanswered(self, call: _Call) -> str:
        """Return why the endpoint cannot be asked at all; empty where it can, or nobody can say."""
        if not call.model.startswith("openai:"):
            return ""
        found = await ask_endpoint(self.models)
        return found.line if found.verdict == "bad" else ""

    async def _send(
        self, call: _Call, messages: tuple[Message, ...], form: Form
    ) -> tuple[str, RawReply]:
        """Make one try of a call: note it, send it, store what comes, close it."""
        expected = self._expected(call.model, messages)
        budgets = await asyncio.to_thread(read_budgets, self._directory)
        attempt = await asyncio.to_thread(
            self._ledger.begin,
            key=call.key,
            role=call.role,
            place=json.dumps(call.place),
            model=call.model,
            prompt_sha256=call.prompt_sha256,
            expected=expected,
            allow=lambda totals: require_call(budgets, totals, expected, self._directory),
        )
        report_progress("thinking", role=call.role, place=list(call.place), model=call.model)
        try:
            message = await self._invoke(call, messages, form)
            raw = await asyncio.to_thread(raw_reply, message)
            if call.model.startswith("openai:") and not raw.finish_reason:
                raise ConnectionError("the reply broke off")  # Streams may end without an error.
        except asyncio.CancelledError:
            await asyncio.to_thread(
                self._ledger.not_answered, call.key, attempt, "cancelled", maybe_paid=True
            )
            raise
        except (UserError, AssertionError) as error:
            await asyncio.to_thread(
                self._ledger.not_answered, call.key, attempt, str(error), maybe_paid=False
            )
            raise
        except Exception as error:
            # A provider's client may raise anything while it reads an answer: none of it may end
            # the run, and none of it is our own code's.
            await self._explain(call, attempt, error)
        usage = self._usage(call.model, messages, message, raw)
        reply = await asyncio.to_thread(self._artifacts.put_text, raw.model_dump_json())
        await asyncio.to_thread(self._ledger.answered, call.key, attempt, reply, usage)
        await self._tell_answer(call, usage)
        return reply, raw

    async def _invoke(
        self, call: _Call, messages: tuple[Message, ...], form: Form
    ) -> Any:
        async with opened_model(self.models, call.model) as model:
            asked = await asyncio.to_thread(bound, model, self.models, call.model, form)
            # The client waits as long for each piece, and some servers send blanks while they work.
            longest = LONGEST_STREAM if self.models.streaming else 1
            ours = call.model.startswith("openai:")
            seconds = longest * self.models.timeout_seconds if ours else None
            try:
                async with asyncio.timeout(seconds):
                    return await asked.ainvoke(
                        [as_langchain(message) for message in messages],
                        {
                            "run_name": call.role,
                            "tags": [call.role],
                            "metadata": {"role": call.role, "place": list(call.place)},
                        },
                    )
            except TimeoutError as error:
                late = "it timed out" if seconds is None else f"no whole reply in {seconds:g} s"
                raise TimeoutError(str(error) or late) from error

    async def _explain(self, call: _Call, attempt: int, error: Exception) -> None:
        """Close a try that failed and raise what its failure means."""
        try:
            failed = await asyncio.to_thread(explained, error, call.model)
            if failed.blame == "silence":
                failed = await self._listened(failed, call)
        except UserError as wrong:
            await asyncio.to_thread(
                self._ledger.not_answered, call.key, attempt, str(wrong), maybe_paid=False
            )
            raise wrong from error
        await asyncio.to_thread(
            self._ledger.not_answered, call.key, attempt, failed.reason, failed.maybe_paid
        )
        raise failed from error

    async def _listened(self, failed: CallFailed, call: _Call) -> CallFailed:
        """Return whose fault a silence is: the endpoint's when it says nothing now either."""
        gone = await self._unanswered(call)
        return CallFailed(
            f"{failed.reason}; {gone}" if gone else failed.reason,
            again=failed.again and not gone,
            maybe_paid=failed.maybe_paid,
            blame="endpoint" if gone else "call",
        )

    def _expected(self, model: str, messages: tuple[Message, ...]) -> Usage:
        tokens_in = sum(-(-message.length // 4) for message in messages)
        tokens_out = self.models.max_output_tokens or 0
        money = priced(self.models, model, {"in": tokens_in, "out": tokens_out})
        return Usage(tokens_in=tokens_in, tokens_out=tokens_out, estimated=True, money=money)

    def _usage(
        self, model: str, messages: tuple[Message, ...], message: Any, raw: RawReply
    ) -> Usage:
        counted = message.usage_metadata
        if counted and min(counted["input_tokens"], counted["output_tokens"]) < 0:
            counted = None  # A server that counts like this would lift the caps.
        if counted:
            details = counted.get("input_token_details") or {}
            tokens_in, tokens_out = counted["input_tokens"], counted["output_tokens"]
            cached = min(tokens_in, max(0, details.get("cache_read") or 0))
        else:
            tokens_in = sum(-(-each.length // 4) for each in messages)
            tokens_out = estimate_tokens("".join((raw.text, raw.refusal, *raw.arguments)))
            cached = 0
        money = priced(self.models, model, {"in": tokens_in, "cached": cached, "out": tokens_out})
        return Usage(
            tokens_in=tokens_in, tokens_cached=cached, tokens_out=tokens_out,
            estimated=not counted, money=money,
        )  # fmt: skip

    def _wait(self, state: RetryCallState) -> float:
        """Return the seconds until the next try: the server's wish, else a growing random time."""
        error = _error(state)
        if isinstance(error, CallFailed) and error.wait_seconds is not None:
            return error.wait_seconds
        first = self.models.first_wait_seconds
        return wait_random_exponential(multiplier=first, max=LONGEST_WAIT_SECONDS)(state)

    async def _tell_answer(self, call: _Call, usage: Usage) -> None:
        totals = await asyncio.to_thread(self._ledger.totals)
        report_progress(
            "answered",
            role=call.role,
            place=list(call.place),
            model=call.model,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            money=usage.money,
            calls=totals.calls,
            all_tokens=totals.tokens,
            all_money=totals.money,
        )


class _Call:
    """What makes a call this call."""

    def __init__(
        self, role: Role, place: tuple[int | str, ...], ask: int, model: str, prompt_sha256: str
    ) -> None:
        self.role = role
        self.place = place
        self.model = model
        self.prompt_sha256 = prompt_sha256
        self.key = sha256_of("call", role, json.dumps(place), str(ask), model, prompt_sha256)


def _as_json(messages: Sequence[Message]) -> str:
    # Without what most messages lack: the artifacts of plain conversations stay what they were.
    return json.dumps([message.model_dump(exclude_defaults=True) for message in messages], indent=1)


def _again(raw: RawReply, reason: str) -> tuple[Message, Message]:
    """Return the two messages with which a conversation goes on after a malformed reply."""
    return (
        Message(role="assistant", content=raw.said()[:REPLY_SHOWN]),
        Message(
            role="user",
            content=f"This reply cannot be used: {reason}\n"
            "Answer once more, in full, in the form that was asked for.",
        ),
    )


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _endpoint_had_time(state: RetryCallState) -> bool:
    """Whether a call that does not reach its endpoint has been tried for long enough."""
    error = _error(state)
    endpoint = isinstance(error, CallFailed) and error.blame == "endpoint"
    return endpoint and (state.seconds_since_start or 0.0) >= ENDPOINT_SECONDS


def _tell_wait(call: _Call, reason: str, seconds: float) -> None:
    report_progress(
        "trying_again",
        role=call.role,
        place=list(call.place),
        reason=reason,
        seconds=round(seconds, 1),
    )


def _tell_stand_in(call: _Call, reason: str) -> None:
    report_progress("standing_in", role=call.role, place=list(call.place), reason=reason)
