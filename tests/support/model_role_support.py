"""Runs on the text device with a scripted model in some roles: what tests of the roles share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import graph_support
import pytest
from asked import Asked
from graph_support import TextRewrite
from hypothesis import strategies as st
from scripted_chat_model import CURRENT, ScriptedChatModel, cut_off, http_error, refusal, use

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.evidence import Evidence, Step
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.optimizations import Optimization
from kernelblaster.memory.records.states import PerformanceState
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.models.records import Role
from kernelblaster.tools.techniques.catalogue import knowledge_seed

TWO = (TextRewrite("vectorize_memory_access", 0.5), TextRewrite("fast_math", 0.8))

BAD: list[list[Any]] = [
    ["not JSON"] * 3,
    ['{"state": "un', '{"primary": ', "{"],
    ["{}"] * 3,
    ['{"unknown": 1}'] * 3,
    ["[1, 2]"] * 3,
    ['{"a": 1} and {"b": 2}'] * 3,
    [""] * 3,
    [refusal()] * 3,
    [cut_off('{"reason": "')] * 3,
    [http_error(500)] * 5,
    [http_error(429, "0")] * 5,
    [http_error(400, text="maximum context length exceeded")],
]
"""Scripts that never come to a usable reply in any role."""


class Ran(NamedTuple):
    """A finished run and what it left."""

    result: RunResult
    events: list[dict[str, Any]]
    steps: list[Step]
    evidence: list[Evidence]
    lessons: list[Lesson]
    states: list[PerformanceState]
    listed: dict[str, dict[str, Optimization]]

    def told(self, event: str) -> list[dict[str, Any]]:
        """The progress events of one kind."""
        return [each for each in self.events if each["event"] == event]


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: ScriptedChatModel,
    *roles: Role,
    rewrites: tuple[TextRewrite, ...] = TWO,
    **changes: Any,
) -> Ran:
    """Run with a model in some roles; the others are built in."""
    graph_support.install(monkeypatch.setattr, rewrites)
    values: dict[str, Any] = {
        "task": "text.py", "knowledge": str(folder / "kb"), "iterations": 1, "rollouts": 1,
        "steps": 2,
    }  # fmt: skip
    if roles:
        values |= {
            "model": ",".join(f"{role}={CURRENT}" for role in roles),
            "models": use(monkeypatch, model, *roles, first_wait_seconds=0.01),
        }
    events: list[Any] = []
    request = Asked.of(**(values | changes))
    session = request.session(folder / "run")
    try:
        result = asyncio.run(session.run(events.append))
    finally:
        session.close()
    with RunStore(folder / "run" / "run.sqlite") as store:
        steps = store.replay.steps()
    directory = Path(request.context.knowledge or "")
    with KnowledgeBase.open(directory, knowledge_seed()) as knowledge:
        return Ran(
            result, events, steps,
            knowledge.snapshot().evidence(), knowledge.written_lessons(),
            knowledge.states(), knowledge.snapshot().optimizations("simulated"),
        )  # fmt: skip


def new_folder(parent: Path, name: str) -> Path:
    """Return a fresh folder under a test's."""
    folder = parent / name
    folder.mkdir()
    return folder


def jsonish(fields: list[str], words: list[str]) -> st.SearchStrategy[Any]:
    """Replies that resemble JSON of some fields with some words: most are wrong somewhere."""
    leaf = (
        st.none() | st.booleans() | st.integers(-5, 40) | st.floats(allow_nan=False)
        | st.sampled_from(words) | st.text(max_size=12)
    )  # fmt: skip
    names = st.sampled_from(fields) | st.text(max_size=6)
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6),
        max_leaves=12,
    )
    return st.dictionaries(names, value, max_size=6) | st.text(max_size=40)
