"""A small OpenAI-compatible server on a real socket: scripted replies, streaming, and faults."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Say:
    """One answer: text or a tool's arguments, or a fault."""

    text: str = ""
    arguments: dict[str, Any] | str | None = None
    """Arguments of a call of the first tool offered; a string is sent as it is."""
    refusal: str = ""
    finish: str = "stop"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error_code: str = ""
    seconds: float = 0.0
    """Before anything is sent."""
    drop: bool = False
    """Close the connection in the middle of the answer."""
    blanks: int = 0
    """Sent first, one in 0.1 s, as by gateways that keep a connection open while they work."""
    body: str | None = None
    """Sent instead of a chat completion."""
    usage: bool = True


Answer = Say | Callable[[dict[str, Any]], Say]


@dataclass
class Seen:
    """One request as it came in."""

    path: str
    key: str
    body: dict[str, Any]
    at: float


class OpenAiServer:
    """Serves `answers` in order, then `otherwise`; keeps what was asked in `seen`."""

    def __init__(
        self, answers: Sequence[Answer] = (), otherwise: Answer | None = None, port: int = 0
    ) -> None:
        self.answers = list(answers)
        self.otherwise = otherwise
        self.seen: list[Seen] = []
        self.models = ["small"]
        self.listing: Say | None = None
        """Sent for the list of models in the list's place."""
        self.greeting: Say | None = None
        """Sent for an empty conversation; by default it is refused, as servers do."""
        self._lock = threading.Lock()
        self._under_way = 0
        self.most_at_once = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                server._note(self, {})
                if server.listing is not None:
                    time.sleep(server.listing.seconds)
                    self._answer(server.listing, {})
                    return
                if not self.path.endswith("/models"):
                    self._send(404, json.dumps({"error": {"message": "no such page"}}))
                    return
                listed = [{"id": name, "object": "model"} for name in server.models]
                self._send(200, json.dumps({"object": "list", "data": listed}))

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length))
                server._note(self, body)
                if not body["messages"]:
                    self._answer(server.greeting or server._refusal(body), body)
                    return
                with server._counted():
                    say = server._next(body)
                    time.sleep(say.seconds)
                    self._answer(say, body)

            def _answer(self, say: Say, body: dict[str, Any]) -> None:
                if say.status != 200:
                    error = {"message": say.text or "told to fail", "code": say.error_code or None}
                    self._send(say.status, json.dumps({"error": error}), say.headers)
                elif say.body is not None:
                    self._send(200, say.body)
                elif body.get("stream"):
                    with suppress(BrokenPipeError):
                        self._stream(say, body)
                else:
                    whole = json.dumps(completion(say, body))
                    self._send(200, whole, cut=say.drop, blanks=say.blanks)

            def _send(
                self,
                status: int,
                text: str,
                headers: dict[str, str] | None = None,
                cut: bool = False,
                blanks: int = 0,
            ) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data) + blanks))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # A client that timed out is gone.
                    for _ in range(blanks):
                        self.wfile.write(b" ")
                        time.sleep(0.1)
                    self.wfile.write(data[: len(data) // 2] if cut else data)
                if cut:
                    self.close_connection = True

            def _stream(self, say: Say, body: dict[str, Any]) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                chunks = list(pieces(say, body))
                chunks[1:1] = [chunks[0]] * say.blanks
                for number, chunk in enumerate(chunks):
                    if say.drop and number == len(chunks) // 2:
                        # Half a line, then nothing: as a server that dies.
                        self.wfile.write(b'data: {"id": "x", "obj')
                        self.close_connection = True
                        return
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                    self.wfile.flush()
                    if number < say.blanks:
                        time.sleep(0.1)
                self.wfile.write(b"data: [DONE]\n\n")
                self.close_connection = True

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        """The address for --base-url."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def port(self) -> int:
        """Where it listens; another server may take it over."""
        return int(self._http.server_address[1])

    @property
    def chats(self) -> list[Seen]:
        """The chat calls that came in, in order; empty conversations are none."""
        return [each for each in self.seen if each.body.get("messages")]

    @property
    def greetings(self) -> list[Seen]:
        """The empty conversations that came in, in order."""
        return [each for each in self.seen if each.body.get("messages") == []]

    @contextmanager
    def running(self) -> Iterator[OpenAiServer]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.die()
            thread.join()

    def die(self) -> None:
        """Listen no longer; callable from an answer, which may still be sent."""
        self._http.shutdown()
        self._http.server_close()

    def _note(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        key = handler.headers.get("authorization", "").removeprefix("Bearer ")
        with self._lock:
            self.seen.append(Seen(handler.path, key, body, time.monotonic()))

    def _refusal(self, body: dict[str, Any]) -> Say:
        if body["model"] not in self.models:
            return Say(f"The model `{body['model']}` does not exist", status=404)
        return Say("messages: the list is empty", status=400)

    def _next(self, body: dict[str, Any]) -> Say:
        with self._lock:
            answer = self.answers.pop(0) if self.answers else self.otherwise
        if answer is None:
            return Say(status=500, text="the script has no answer left")
        return answer if isinstance(answer, Say) else answer(body)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1


def completion(say: Say, body: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion as OpenAI forms it."""
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    if say.refusal:
        message["refusal"] = say.refusal
    if say.arguments is not None:
        message["tool_calls"] = [tool_call(say, body)]
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": say.finish}],
    }
    return {**answer, "usage": usage(body)} if say.usage else answer


def pieces(say: Say, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the chunks of a streamed completion; usage last, and only where it is asked for."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": body["model"], "choices": [choice],
        }  # fmt: skip

    yield chunk({"role": "assistant", "content": ""})
    for start in range(0, len(say.text), 7):
        yield chunk({"content": say.text[start : start + 7]})
    if say.refusal:
        yield chunk({"refusal": say.refusal})
    if say.arguments is not None:
        call = tool_call(say, body)
        arguments = call["function"]["arguments"]
        named = {**call["function"], "arguments": ""}
        yield chunk({"tool_calls": [{**call, "index": 0, "function": named}]})
        for start in range(0, len(arguments), 7):
            part = {"arguments": arguments[start : start + 7]}
            yield chunk({"tool_calls": [{"index": 0, "function": part}]})
    yield chunk({}, say.finish)
    if say.usage and (body.get("stream_options") or {}).get("include_usage"):
        yield {**chunk({}), "choices": [], "usage": usage(body)}


def tool_call(say: Say, body: dict[str, Any]) -> dict[str, Any]:
    """Return a call of the first tool that the request offers."""
    sent = say.arguments if isinstance(say.arguments, str) else json.dumps(say.arguments)
    name = body["tools"][0]["function"]["name"]
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": sent}}


def usage(body: dict[str, Any]) -> dict[str, Any]:
    """Return token counts: 100 in, 40 of them cached, 20 out."""
    return {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 40},
    }

