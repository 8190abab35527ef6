"""Tell whoever watches what an agent just did; silent where nobody streams."""

from __future__ import annotations

from typing import Any

from langgraph.config import get_stream_writer


def report_progress(kind: str, **facts: Any) -> None:
    """Send one JSON-able event on LangGraph's `custom` stream.

    Outside a graph (a node called alone, as in tests) there is no stream and nothing happens.
    """
    try:
        writer = get_stream_writer()
    except RuntimeError:
        return
    writer({"event": kind, **facts})
