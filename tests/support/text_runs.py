"""Whole runs on the text device, and what two of them have in common."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

from asked import Asked

from kernelblaster.graph.embedding import Watch
from kernelblaster.graph.session import Session
from kernelblaster.nodes.records.result import RunResult


def request(folder: Path, **changes: Any) -> Asked:
    values: dict[str, Any] = {
        "task": "text.py",
        "knowledge": str(folder / "kb"),
        "iterations": 2,
        "rollouts": 2,
        "steps": 3,
        **changes,
    }
    return Asked.of(**values)


def run(
    folder: Path, name: str = "run", events: list[Any] | None = None, **changes: Any
) -> RunResult:
    session = request(folder, **changes).session(folder / name)
    try:
        return asyncio.run(session.run(events.append if events is not None else lambda _: None))
    finally:
        session.close()


async def aresume(directory: Path, watch: Watch = lambda event: None) -> RunResult:
    """Go on with a run in its directory, to its end."""
    session = Session.open(directory)
    try:
        return await session.run(watch)
    finally:
        session.close()


def resume(directory: Path) -> RunResult:
    return asyncio.run(aresume(directory))


def comparable(result: RunResult) -> dict[str, Any]:
    """Everything of a result but where it lies (lesson ids name the run too)."""
    return result.model_dump(mode="json", exclude={"run", "best_source", "lessons"})


def replayed(directory: Path) -> list[Any]:
    with sqlite3.connect(directory / "run.sqlite") as database:
        rows = database.execute("SELECT body FROM steps ORDER BY iteration, rollout, step")
        return [
            {k: v for k, v in json.loads(body).items() if k not in ("evidence_id", "run")}
            for (body,) in rows
        ]
