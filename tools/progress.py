"""Tell whoever watches what an agent just did; silent where nobody streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def at_place(place: tuple[int, int, int]) -> dict[str, int]:
    """Return the facts of an event that say in which step it happened."""
    return dict(zip(("iteration", "rollout", "step"), place, strict=True))


def report_progress(kind: str, **facts: Any) -> None:
    """Send one JSON-able event on LangGraph's `custom` stream."""
    progress_writer()({"event": kind, **facts})


def progress_writer() -> Callable[[dict[str, Any]], None]:
    """Return what writes events to the `custom` stream of the graph around.

    Outside a graph (a node called alone, as in tests) there is no stream and nothing happens.
    """
    # Loaded by whoever runs a graph; commands that only read runs need no second for it.
    from langgraph.config import get_stream_writer

    try:
        return get_stream_writer()
    except (RuntimeError, KeyError):  # No runnable around, or one that is no graph.
        return lambda event: None
