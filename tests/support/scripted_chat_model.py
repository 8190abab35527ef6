"""A chat model that answers from a script: by role or in order, with failures where wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ConfigDict

from kernelblaster.tools.models.records import ROLES, ModelPlan, Role

Scripted = Any
"""One reply: text, a dict or pydantic record (JSON, or the tool's arguments where tools are bound),
an AIMessage, an exception to raise, or a function of the messages that gives one of these."""

CURRENT = "import:scripted_chat_model:current"
"""The model string that reaches the model installed by `use`."""

current: BaseChatModel | None = None


@dataclass
class Call:
    """One call as the model saw it."""

    role: str
    place: tuple[int | str, ...]
    messages: list[BaseMessage]
    options: dict[str, Any]

    @property
    def prompt(self) -> str:
        """All messages as one text."""
        return "\n\n".join(str(message.content) for message in self.messages)


@dataclass
class Script:
    """Replies still to give, and the calls seen so far."""

    in_order: list[Scripted] = field(default_factory=list)
    by_role: dict[str, list[Scripted]] = field(default_factory=dict)
    otherwise: Scripted = None
    calls: list[Call] = field(default_factory=list)

    def next(self, role: str) -> Scripted:
        """Take the role's next reply, else the next of all, else the one for every other call."""
        for queue in (self.by_role.get(role, []), self.in_order):
            if queue:
                return queue.pop(0)
        if self.otherwise is None:
            raise AssertionError(f"the script has no reply left for {role}")
        return self.otherwise


class ScriptedChatModel(BaseChatModel):
    """Answers `replies` in order; `by_role` first where a role has replies of its own;
    `otherwise` when both are used up. `usage=False` reports no tokens. Calls are in `.calls`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    script: Script
    usage: bool = True

    def __init__(
        self,
        replies: Sequence[Scripted] = (),
        *,
        by_role: Mapping[str, Sequence[Scripted]] | None = None,
        otherwise: Scripted = None,
        usage: bool = True,
        **fields: Any,
    ) -> None:
        script = Script(
            list(replies), {role: list(own) for role, own in (by_role or {}).items()}, otherwise
        )
        super().__init__(**{"script": script, **fields}, usage=usage)

    @property
    def calls(self) -> list[Call]:
        """The calls so far, in order."""
        return self.script.calls

    def calls_of(self, role: str) -> list[Call]:
        """The calls of one role."""
        return [call for call in self.calls if call.role == role]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Runnable[Any, AIMessage]:
        """Bind tools; a dict in the script then becomes a call of the first."""
        return self.bind(tools=list(tools), **options)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        return self._answer(messages, run_manager.metadata if run_manager else {}, options)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        return self._answer(messages, run_manager.metadata if run_manager else {}, options)

    def _answer(
        self, messages: list[BaseMessage], metadata: Mapping[str, Any], options: dict[str, Any]
    ) -> ChatResult:
        role = str(metadata.get("role", ""))
        place = tuple(metadata.get("place", ()))
        self.script.calls.append(Call(role, place, list(messages), options))
        reply = self.script.next(role)
        if callable(reply) and not isinstance(reply, BaseModel | type):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        message = self._message(reply, options)
        if self.usage and message.usage_metadata is None:
            count = sum(len(str(each.content)) for each in messages) // 4
            message.usage_metadata = usage_of(count, len(str(message.content)) // 4 + 1)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _message(self, reply: Scripted, options: Mapping[str, Any]) -> AIMessage:
        if isinstance(reply, AIMessage):
            return reply.model_copy(deep=True)
        if isinstance(reply, BaseModel):
            reply = reply.model_dump(mode="json")
        if not isinstance(reply, dict):
            return AIMessage(str(reply))
        tools = options.get("tools")
        if not tools:
            return AIMessage(json.dumps(reply))
        name = tools[0]["function"]["name"]
        return AIMessage("", tool_calls=[{"name": name, "args": reply, "id": "call_1"}])


def usage_of(tokens_in: int, tokens_out: int, cached: int = 0) -> UsageMetadata:
    """Return what a server says of a reply's tokens."""
    return UsageMetadata(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        total_tokens=tokens_in + tokens_out,
        input_token_details={"cache_read": cached},
    )


def refusal(text: str = "I cannot help with that.") -> AIMessage:
    """Return a refusal, as OpenAI marks it."""
    return AIMessage("", additional_kwargs={"refusal": text})


def cut_off(text: str) -> AIMessage:
    """Return a reply that ran into the output limit."""
    return AIMessage(text, response_metadata={"finish_reason": "length"})


def http_error(status: int, retry_after: str | None = None, text: str = "") -> Exception:
    """Return the exception of the openai client for an HTTP status."""
    kinds: dict[int, type[openai.APIStatusError]] = {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        404: openai.NotFoundError,
        429: openai.RateLimitError,
    }
    headers = {} if retry_after is None else {"retry-after": retry_after}
    response = httpx.Response(
        status, headers=headers, request=httpx.Request("POST", "http://model.test/v1")
    )
    kind = kinds.get(status, openai.InternalServerError)
    return kind(text or f"Error code: {status}", response=response, body=None)


def use(
    monkeypatch: pytest.MonkeyPatch,
    model: BaseChatModel,
    *roles: Role,
    **fields: Any,
) -> ModelPlan:
    """Install a model for this test and return the plan by which roles (default: all) ask it.

    Transport failures are not waited for: the plan's backoff is the caller's to patch.
    """
    monkeypatch.setattr("scripted_chat_model.current", model)
    chosen: tuple[Role, ...] = roles or ROLES
    return ModelPlan(roles=dict.fromkeys(chosen, CURRENT), **fields)


def failing(times: int, error: Callable[[], Exception], then: Scripted) -> list[Scripted]:
    """Return a script that fails some times and then answers."""
    return [*(error() for _ in range(times)), then]
