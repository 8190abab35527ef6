"""Draw the graphs as they are wired into langgraph.md: python docs/draw_graphs.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kernelblaster.graph import first_kernel, lowering, optimize, rollout
from kernelblaster.graph.policies import policy_graph

PAGE = Path(__file__).with_name("langgraph.md")
GRAPHS: dict[str, Any] = {
    "optimize": optimize.graph, "first_kernel": first_kernel.graph, "rollout": rollout.graph,
    "lowering": lowering.graph,
    "coder_judge": policy_graph("coder_judge"),
}  # fmt: skip


def with_drawings(page: str) -> str:
    """Return the page with each graph drawn anew between its markers.

    Raises:
        ValueError: a graph has no markers, or has them twice.
    """
    for name, graph in GRAPHS.items():
        drawing = graph.get_graph().draw_mermaid(with_styles=False).strip()
        begin, end = f"<!-- graph: {name} -->", "<!-- end of graph -->"
        pattern = re.compile(f"{begin}\n.*?{end}", re.DOTALL)
        found = pattern.findall(page)
        if len(found) != 1:
            raise ValueError(f"{PAGE.name} holds the markers of {name} {len(found)} times")
        page = page.replace(found[0], f"{begin}\n```mermaid\n{drawing}\n```\n{end}")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_drawings(PAGE.read_text()))
