"""Tools with which an agent of LangChain can write, mend and measure a kernel for one task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..harness.records.readings import Reading
from ..memory.locations import default_knowledge_directory
from ..nodes.records.plan import RunContext
from ..nodes.run.beginning.begin import checked
from ..tools.for_agents.opening import AgentTools, Opening
from .embedding import as_tool


def agent_tools(
    task: str | Path,
    *,
    gpu: str = "",
    device: str = "auto",
    dimensions: Mapping[str, int] | None = None,
    reading: Mapping[str, Any] | Reading | None = None,
    reference_seconds: float | None = None,
    knowledge: str | Path | None = None,
) -> AgentTools:
    """Return the tools for a task and a GPU: a list for `create_agent` or `bind_tools`.

    show_task, compile_kernel, run_kernel, profile_kernel, search_knowledge, describe_technique,
    apply_technique, read_more, and optimize_kernel, which runs the whole loop. PyTorch, compiler
    and knowledge base are opened by the first call that needs them.

    Example:
        with kernelblaster.agent_tools("examples/softmax.py", gpu="H100") as tools:
            by_name = {tool.name: tool for tool in tools}
            print(by_name["show_task"].invoke({}))

    Args:
        task: path of a PyTorch reference in KernelBench form.
        gpu: the GPU to simulate, or the name that the real one must have.
        device: auto, cuda (cuda:0,1), simulated, or one that a package brings.
        dimensions: dimensions at which kernels are verified, by name in the reference.
        reading: how the reference is read: mode, dtype and allow_degenerate, as in `Reading`.
        reference_seconds: how long PyTorch may take for the task's answers on the CPU.
        knowledge: knowledge base directory; by default the user's.

    Raises:
        UserError: no such file, device, GPU or reading, or a device that answers on another host.
    """
    directory = Path(knowledge or default_knowledge_directory())
    read = checked(Reading, dict(reading or {}))
    context = checked(
        RunContext,
        {
            "gpu": gpu,
            "device": device,
            "knowledge": str(directory),
            "reference_seconds": reference_seconds,
        },
    )
    opening = Opening(
        Path(task), device, gpu, dimensions or {}, directory, read, context.reference_seconds
    )
    return AgentTools(opening, [as_tool(context, dimensions=dimensions, reading=read)])
