"""The graphs as a server of the tests has them: those of langgraph.json, on the text device.

A model for clients to name, `import:served_graphs:writer`, writes nine tenths of the time shown.
"""

from __future__ import annotations

import re
from typing import Any

import graph_support
from run_child import replace
from scripted_chat_model import ScriptedChatModel

graph_support.install(replace)

from kernelblaster.graph.optimize import graph as optimize  # noqa: E402
from kernelblaster.graph.rollout import graph as rollout  # noqa: E402
from kernelblaster.graph.served import (  # noqa: E402
    best_of_n,
    coder_judge,
    correction_only,
    minimal,
    optimisation_only,
    zero_shot,
)


def _written(messages: list[Any]) -> str:
    (shown, *_) = re.findall(r"us: ([\d.]+)", str(messages))
    return f"```cuda\nus: {float(shown) * 0.9:.6f}\n```"


writer = ScriptedChatModel(otherwise=_written)

__all__ = [
    "best_of_n",
    "coder_judge",
    "correction_only",
    "minimal",
    "optimisation_only",
    "optimize",
    "rollout",
    "writer",
    "zero_shot",
]
