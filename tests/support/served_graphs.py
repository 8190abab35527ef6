"""The graphs as a server of the tests has them: those of langgraph.json, on the text device."""

from __future__ import annotations

import graph_support
from run_child import replace

graph_support.install(replace)

from kernelblaster.graph.optimize import graph as optimize  # noqa: E402
from kernelblaster.graph.rollout import graph as rollout  # noqa: E402

__all__ = ["optimize", "rollout"]
