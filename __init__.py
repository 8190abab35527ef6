"""KernelBlaster: agents that rewrite CUDA kernels, measure every rewrite, and remember.

    import kernelblaster
    result = kernelblaster.optimize("examples/softmax.py", gpu="H100")
    print(f"{result.gain:.2f}x faster: {result.best_source}")

What stands here is the public face; each name is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelblaster.graph.agent_tools import agent_tools
    from kernelblaster.graph.checkpoints import checkpoint_types
    from kernelblaster.graph.embedding import aoptimize, as_node, as_tool, evaluate, optimize
    from kernelblaster.graph.optimize import build_graph as build_optimize_graph
    from kernelblaster.harness.errors import UserError
    from kernelblaster.harness.records.evaluations import Evaluation
    from kernelblaster.nodes.records.plan import OptimizeRequest, RunContext
    from kernelblaster.nodes.records.result import RunResult

__version__ = "0.1.0"

__all__ = [
    "Evaluation", "OptimizeRequest", "RunContext", "RunResult", "UserError", "agent_tools",
    "aoptimize", "as_node", "as_tool", "build_optimize_graph", "checkpoint_types", "evaluate",
    "optimize",
]  # fmt: skip

_HOMES = {
    "Evaluation": "harness.records.evaluations",
    "OptimizeRequest": "nodes.records.plan",
    "RunContext": "nodes.records.plan",
    "RunResult": "nodes.records.result",
    "UserError": "harness.errors",
    "agent_tools": "graph.agent_tools",
    "aoptimize": "graph.embedding",
    "as_node": "graph.embedding",
    "as_tool": "graph.embedding",
    "build_optimize_graph": "graph.optimize:build_graph",
    "checkpoint_types": "graph.checkpoints",
    "evaluate": "graph.embedding",
    "optimize": "graph.embedding",
}


def __getattr__(name: str) -> Any:
    """Import a name of the face from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kernelblaster' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    return getattr(importlib.import_module(f"kernelblaster.{module}"), attribute or name)


def __dir__() -> list[str]:
    """List the face."""
    return sorted([*__all__, "__version__"])
