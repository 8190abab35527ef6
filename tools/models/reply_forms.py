"""How a reply of a given type is asked for, and how its JSON is found in what came back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ...harness.records.record import Record
from .chat_models import without_key
from .records import Message, ModelPlan, ToolCall

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.runnables import Runnable

Reply = TypeVar("Reply", bound=BaseModel)

OBJECTS_TRIED = 200
"""Opening braces of a reply that are tried as the beginning of a JSON object."""
COMPLAINTS = 8
"""Complaints about a reply's fields that are passed on."""

STRICT_KEYWORDS = frozenset(
    "type properties required items enum const anyOf $ref $defs description "
    "additionalProperties minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "minItems maxItems pattern format".split()
)
"""What OpenAI's strict structured outputs accept in a schema (its guide "Structured model outputs",
section "Supported schemas"); pydantic checks the rest when the reply is here. Titles repeat the
names of the fields, and are paid for with every call."""


class MalformedReply(ValueError):
    """A reply that cannot be used; its text goes back to the model as the reason to ask again."""


class RawReply(Record):
    """What a model sent, as it is stored: the words, a tool's arguments, a refusal."""

    text: str = ""
    arguments: tuple[str, ...] = ()
    """JSON of each tool call's arguments, as sent."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls, in order, those with arguments that are no JSON too."""
    refusal: str = ""
    finish_reason: str = ""

    def words(self) -> str:
        """Return the reply's text without the thoughts that some servers leave in it.

        Raises:
            MalformedReply: refused, cut off at the limit, or empty.
        """
        self.require_whole()
        text = _without_thoughts(self.text).strip()
        if not text:
            raise MalformedReply("the reply is empty")
        return text

    def structured(self, kind: type[Reply]) -> Reply:
        """Return the reply as a record, from the tool's arguments or from JSON in the text.

        Raises:
            MalformedReply: no such object in it, several, or fields that do not fit.
        """
        self.require_whole()
        if len(set(self.arguments)) > 1:
            raise MalformedReply(f"the tool was called {len(self.arguments)} times; call it once")
        text = self.arguments[0] if self.arguments else self.words()
        return _validated(kind, find_object(text))

    def said(self) -> str:
        """Return what goes into the conversation as the model's turn."""
        return self.arguments[0] if self.arguments else self.text or self.refusal or "(empty)"

    def require_whole(self) -> None:
        """Raise MalformedReply where it was refused, withheld or cut off."""
        if self.refusal:
            raise MalformedReply(f"the request was refused: {self.refusal}")
        if self.finish_reason == "content_filter":
            raise MalformedReply("the reply was withheld by the server's content filter")
        if self.finish_reason == "length":
            raise MalformedReply("the reply was cut off at the output limit; answer more briefly")


def find_object(text: str) -> dict[str, Any]:
    """Return the one JSON object in a text: the whole, a fenced block, or amid prose.

    Raises:
        MalformedReply: there is none, or more than one.
    """
    fault = "the reply holds no JSON object"
    fenced = re.findall(r"```[\w+-]*[ \t]*\n(.*?)```", text, re.DOTALL)
    for candidate in (text, *(fenced if len(fenced) == 1 else ())):
        candidate = candidate.strip()
        if not candidate.startswith(("{", "[")):
            continue
        try:
            value = _decode(candidate)
        except MalformedReply as error:
            fault = str(error)
            continue
        if isinstance(value, dict):
            return value
        fault = "the JSON of the reply is not an object"
    found = _objects_in(text)
    if len(found) > 1:
        raise MalformedReply(f"the reply holds {len(found)} JSON objects; answer with one")
    if not found:
        raise MalformedReply(fault)
    return found[0]


def _objects_in(text: str) -> list[dict[str, Any]]:
    decoder = _decoder()
    found: list[dict[str, Any]] = []
    position, tried = text.find("{"), 0
    while position >= 0 and tried < OBJECTS_TRIED:
        tried += 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            # Braces of code, such as `{}`, are no reply.
            if isinstance(value, dict) and value and value not in found:
                found.append(value)
        position = text.find("{", end)
    return found


def _decode(text: str) -> Any:
    try:
        return _decoder().decode(text)
    except MalformedReply:
        raise
    except json.JSONDecodeError as error:
        raise MalformedReply(
            f"the JSON is malformed at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"the JSON cannot be read: {error}") from error


def _decoder() -> json.JSONDecoder:
    # Not strict: models write line breaks into strings as they are, and what is meant is plain.
    return json.JSONDecoder(parse_constant=_no_number, parse_float=_finite, strict=False)


def _no_number(name: str) -> NoReturn:
    raise MalformedReply(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no_number(digits)


def _validated(kind: type[Reply], value: dict[str, Any]) -> Reply:
    try:
        # As JSON: arrays become tuples and strings enums, and half a surrogate pair is refused.
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        complaints = [
            f"{'.'.join(str(part) for part in each['loc']) or 'the reply'}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        more = f"; and {len(complaints) - COMPLAINTS} more" if len(complaints) > COMPLAINTS else ""
        raise MalformedReply("; ".join(complaints[:COMPLAINTS]) + more) from error
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"the reply cannot be read: {error}") from error


def _without_thoughts(text: str) -> str:
    """Drop the leading <think> block that reasoning models show through some local servers."""
    return re.sub(r"\A\s*+(?:<think>)?(?:(?!</?think>).)*+</think>", "", text, flags=re.DOTALL)


Form = type[BaseModel] | Sequence[Mapping[str, Any]] | None
"""What a reply is to be: a record, calls of tools (their schemas, as OpenAI has them), or text."""


def bound(
    model: BaseChatModel, plan: ModelPlan, name: str, reply: Form
) -> Runnable[Any, AIMessage]:
    """Return the model with the form of its reply bound to it, by the plan's method."""
    if not reply:
        return model
    if not isinstance(reply, type):
        return model.bind_tools([dict(tool) for tool in reply])
    if plan.method == "function_calling":
        return model.bind_tools([_tool(reply)], tool_choice=reply.__name__)
    if not name.startswith("openai:"):
        return model  # Other providers' models have no common form: the schema is in the prompt.
    form: dict[str, Any] = {"type": "json_object"}
    if plan.method == "json_schema":
        schema, strict = strict_schema(reply)
        form = {
            "type": "json_schema",
            "json_schema": {"name": reply.__name__, "schema": schema, "strict": strict},
        }
    # In the body, not as `response_format`: langchain-openai and openai would parse the reply
    # themselves, and raise on a cut-off one, which loses its text and its tokens.
    limit = {} if plan.max_output_tokens is None else {"max_tokens": plan.max_output_tokens}
    body = {"response_format": form, **(limit if plan.base_url else {})}
    return model.bind(extra_body=body)


def with_schema(
    messages: Sequence[Message], plan: ModelPlan, name: str, reply: type[BaseModel]
) -> tuple[Message, ...]:
    """Return the prompt, with the reply's schema at its end where the method does not carry it."""
    carried = plan.method == "json_schema" and name.startswith("openai:")
    if carried or plan.method == "function_calling" or not messages:
        return tuple(messages)
    schema = json.dumps(strict_schema(reply)[0], separators=(",", ":"))
    last = messages[-1]
    content = (
        f"{last.content}\n\nReply with one JSON object and nothing else. Its JSON schema:\n{schema}"
    )
    return (*messages[:-1], last.model_copy(update={"content": content}))


def _tool(reply: type[BaseModel]) -> dict[str, Any]:
    schema, strict = strict_schema(reply)
    about = (reply.__doc__ or "").strip().split("\n")[0]
    return {
        "type": "function",
        "function": {
            "name": reply.__name__,
            "description": about or f"Give the {reply.__name__}.",
            "parameters": schema,
            **({"strict": True} if strict else {}),
        },
    }


def strict_schema(reply: type[BaseModel]) -> tuple[dict[str, Any], bool]:
    """Return a reply's JSON schema in OpenAI's strict form, and whether it fits that form.

    Every field is required there and no others are allowed; a reply with free keys does not fit.
    """
    return _strict(reply.model_json_schema())


def _strict(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    kept: dict[str, Any] = {}
    strict = True
    for keyword, value in schema.items():
        keyword = "anyOf" if keyword == "oneOf" else keyword
        if keyword not in STRICT_KEYWORDS:
            strict = strict and keyword not in ("prefixItems", "allOf", "patternProperties")
            continue
        if keyword in ("properties", "$defs"):
            parts = {name: _strict(each) for name, each in value.items()}
            kept[keyword] = {name: part for name, (part, _) in parts.items()}
            strict = strict and all(good for _, good in parts.values())
        elif keyword == "anyOf":
            branches = [_strict(each) for each in value]
            kept[keyword] = [branch for branch, _ in branches]
            strict = strict and all(good for _, good in branches)
        elif keyword == "items" and isinstance(value, Mapping):
            kept[keyword], good = _strict(value)
            strict = strict and good
        else:
            kept[keyword] = value
    if kept.get("type") == "object":
        if "properties" not in kept:
            return {**kept, "additionalProperties": schema.get("additionalProperties", True)}, False
        kept["additionalProperties"] = False
        kept["required"] = list(kept["properties"])
    elif not kept.keys() - {"description"}:
        strict = False  # Any value at all.
    return kept, strict


def as_langchain(message: Message) -> BaseMessage:
    """Return a message of a conversation as chat models take it."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    if message.role == "tool":
        return ToolMessage(message.content, tool_call_id=message.answers)
    if message.role != "assistant":
        return (SystemMessage if message.role == "system" else HumanMessage)(message.content)
    calls: list[Any] = [
        {"id": call.id, "name": call.name, "args": arguments_of(call) or {}}
        for call in message.calls
    ]
    return AIMessage(message.content, tool_calls=calls)


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return a call's arguments; None where they are no JSON object."""
    try:
        found = _decoder().decode(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def raw_reply(message: BaseMessage) -> RawReply:
    """Return what is worth keeping of a chat model's message."""
    return RawReply(
        calls=tuple(
            ToolCall(
                id=str(call.get("id") or f"call_{number}"),
                name=_clean(str(call.get("name") or "")),
                arguments=_clean(
                    call["args"] if isinstance(call["args"], str) else json.dumps(call["args"])
                ),
            )
            for number, call in enumerate(
                (*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ()))
            )
        ),
        text=_clean(message.text if isinstance(message.text, str) else str(message.text)),
        arguments=tuple(_clean(text) for text in _arguments(message)),
        refusal=_clean(str(message.additional_kwargs.get("refusal") or "")),
        finish_reason=str(message.response_metadata.get("finish_reason") or ""),
    )


def _arguments(message: BaseMessage) -> list[str]:
    """Return each tool call's arguments, as the server sent them where that is known."""
    sent = message.additional_kwargs.get("tool_calls")
    if isinstance(sent, list) and sent:
        texts = [call.get("function", {}).get("arguments") for call in sent]
        if all(isinstance(text, str) for text in texts):
            return texts
    calls = [json.dumps(call["args"]) for call in getattr(message, "tool_calls", ())]
    broken = [str(call.get("args") or "") for call in getattr(message, "invalid_tool_calls", ())]
    return calls + broken


def _clean(text: str) -> str:
    """Replace half surrogate pairs, which no file can hold, and the key, which none should."""
    return without_key(text.encode("utf-8", "replace").decode())
