"""Draw the graphs as they are wired into architecture.md: python docs/draw_graphs.py."""

from __future__ import annotations

import re
from pathlib import Path

from kernelblaster.graph import lowering, optimize, rollout

PAGE = Path(__file__).with_name("architecture.md")
GRAPHS = {"optimize": optimize.graph, "rollout": rollout.graph, "lowering": lowering.graph}


def with_drawings(page: str) -> str:
    """Return the page with each graph drawn anew between its markers.

    Raises:
        ValueError: a graph has no markers, or has them twice.
    """
    for name, graph in GRAPHS.items():
        drawing = graph.get_graph().draw_mermaid(with_styles=False).strip()
        begin, end = f"<!-- graph: {name} -->", "<!-- end of graph -->"
        pattern = re.compile(f"{begin}\n.*?{end}", re.DOTALL)
        block = f"{begin}\n```mermaid\n{drawing}\n```\n{end}"
        page, found = pattern.subn(lambda _, block=block: block, page)
        if found != 1:
            raise ValueError(f"{PAGE.name} holds the markers of {name} {found} times")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_drawings(PAGE.read_text()))
