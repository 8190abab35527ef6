"""Runs from Python: as a function, as a node of another graph, as a tool of another agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.runtime import get_runtime

from ..harness.errors import UserError
from ..harness.process.scratch import scratch_folder
from ..harness.records.evaluations import Evaluation
from ..harness.records.readings import Mode, Precision, Reading
from ..nodes.records.plan import OptimizeRequest, RunContext
from ..nodes.records.result import RunResult
from ..nodes.run.beginning.begin import START_FILE, TASK_FILE, checked
from ..tools.evaluation.file import evaluate_file
from ..tools.for_agents.arguments import Arguments, complaint, short
from ..tools.for_agents.desk import LONGEST_ANSWER
from ..tools.progress import progress_writer
from ..tools.waiting import wait_for as _wait_for
from .policies import policy_graph
from .session import Capped, Session, Undecided, Waiting
from .state import OptimizeInput

Watch = Callable[[dict[str, Any]], None]


async def aoptimize(
    task: str | Path,
    *,
    start: str | Path | None = None,
    run: str | Path | None = None,
    dimensions: Mapping[str, int] | None = None,
    reading: Mapping[str, Any] | Reading | None = None,
    watch: Watch = lambda event: None,
    **settings: Any,
) -> RunResult:
    """Optimise one task in a run directory of its own, and return what it came to.

    Example:
        result = await kernelblaster.aoptimize("examples/softmax.py", gpu="H100", steps=2)

    Args:
        task: path of a PyTorch reference in KernelBench form, or its text.
        start: path of a first CUDA kernel, or its text; without it one is written.
        run: run directory; by default the next free runs/TASK-N.
        dimensions: dimensions at which candidates are verified, by name in the reference.
        reading: how the reference is read: mode, dtype and allow_degenerate, as in `Reading`.
        watch: called with every progress event, a dictionary of JSON values.
        settings: fields of `RunContext`: gpu, device, model, iterations, rollouts, steps, seed, ...

    Raises:
        UserError: what is asked cannot be served: one line says what, where and how to mend it.
        Capped, Waiting, Undecided: the run stopped with its place saved; `kernelblaster resume`
            goes on.
    """
    request = checked(
        OptimizeRequest,
        {
            "task": str(task),
            "start": None if start is None else str(start),
            "run": None if run is None else str(run),
            "dimensions": dict(dimensions or {}),
            "reading": dict(reading or {}),
        },
    )
    context = checked(RunContext, settings)
    creating = asyncio.ensure_future(asyncio.to_thread(Session.create, request, context))
    try:
        session = await asyncio.shield(creating)
    except asyncio.CancelledError:
        # The thread goes on: what it makes is taken away again.
        session = await creating
        session.discard_unserved()
        session.close()
        raise
    try:
        return await session.run(watch)
    except BaseException:
        session.discard_unserved()
        raise
    finally:
        await asyncio.to_thread(session.close)


def optimize(task: str | Path, **options: Any) -> RunResult:
    """Do what `aoptimize` does and wait for it, also where an event loop runs (a notebook).

    Example:
        result = kernelblaster.optimize("examples/softmax.py", gpu="H100", seed=0)
        print(result.gain, result.best_source)
    """
    return _wait_for(aoptimize(task, **options))


def evaluate(
    kernel: str | Path,
    task: str | Path,
    *,
    device: str = "auto",
    gpu: str = "",
    dimensions: Mapping[str, int] | None = None,
    confirm: bool = False,
    reading: Mapping[str, Any] | Reading | None = None,
    reference_seconds: float | None = None,
) -> Evaluation:
    """Compile, verify, profile and time one CUDA source for one task.

    Example:
        print(kernelblaster.evaluate("kernel.cu", "examples/softmax.py").outcome)

    Args:
        kernel: path of a CUDA source that defines `launch`, or its text.
        task: path of a PyTorch reference in KernelBench form, or its text.
        device: auto, cuda (cuda:0,1), simulated, or one that a package brings.
        gpu: the GPU to simulate, or the name that the real one must have.
        dimensions: dimensions at which it is verified, by name in the reference.
        confirm: verify and time what passed once more.
        reading: how the reference is read: mode, dtype and allow_degenerate, as in `Reading`.
        reference_seconds: how long PyTorch may take for the task's answers on the CPU.

    Raises:
        UserError: a file, the device or the GPU cannot be used, or the file is no kernel for it.
    """
    read = checked(Reading, dict(reading or {}))
    context = checked(RunContext, {"reference_seconds": reference_seconds})
    with scratch_folder("given") as folder:
        return _wait_for(
            evaluate_file(
                _as_file(kernel, folder / START_FILE), _as_file(task, folder / TASK_FILE), device,
                gpu, dict(dimensions or {}), confirm, reading=read,
                reference_seconds=context.reference_seconds,
            )
        )  # fmt: skip


def _as_file(given: str | Path, place: Path) -> Path:
    """Return the path that was given, or `place` with the text that was."""
    if isinstance(given, Path) or "\n" not in given:
        return Path(given)
    place.write_text(given, encoding="utf-8")
    return place


def as_node(
    prefix: str = "kernel_", context: RunContext | None = None
) -> Callable[[Any, RunnableConfig], Coroutine[Any, Any, dict[str, Any]]]:
    """Return a node for another graph: it optimises the task that the graph's state names.

    It reads PREFIXtask and, where the state has them, PREFIXstart, PREFIXrun and
    PREFIXdimensions; it writes PREFIXresult, a `RunResult`, and nothing else. The parent's
    checkpointer keeps its place, its interrupts stop the parent, `subgraphs=True` streams what it
    does; the parent's recursion limit is for the parent's own steps.

    Args:
        prefix: before each key of the state, so that none of the parent's own is touched.
        context: how the run is done; by default the parent's, where that is a `RunContext`.

    Example:
        class State(TypedDict, total=False):
            kernel_task: str
            kernel_result: RunResult

        parent = StateGraph(State)
        parent.add_node("optimize", kernelblaster.as_node(context=RunContext(gpu="H100")))
    """

    async def optimize_kernel(state: Any, config: RunnableConfig) -> dict[str, Any]:
        values = state if isinstance(state, Mapping) else vars(state)
        given = {
            name: values[prefix + name]
            for name in OptimizeRequest.model_fields
            if values.get(prefix + name) is not None
        }
        if "task" not in given:
            raise UserError(f"the state has no {prefix}task: the path of a PyTorch reference")
        settings = context or get_runtime().context
        policy = settings.policy if isinstance(settings, RunContext) else "kernelblaster"
        graph = policy_graph(policy)
        answer = await graph.ainvoke(cast(OptimizeInput, given), config, context=context)
        return {f"{prefix}result": answer["result"]}

    return optimize_kernel


class ToolInput(Arguments):
    """What an agent says to the tool."""

    task: str
    """Path of a PyTorch reference with Model, get_inputs and get_init_inputs."""
    start: str | None = None
    """Path of a CUDA kernel to start from; without it one is written."""
    mode: Mode | None = None
    """Mode of the model: file (as its file leaves it), eval or train."""
    dtype: Precision | None = None
    """Type of floating numbers: file (as the file has them), fp16, bf16 or fp32."""
    allow_degenerate: bool | None = None
    """Whether to go on where the answer is known beforehand."""


def as_tool(
    context: RunContext | None = None,
    *,
    dimensions: Mapping[str, int] | None = None,
    reading: Mapping[str, Any] | Reading | None = None,
) -> BaseTool:
    """Return `optimize_kernel` as a LangChain tool, for agents that call tools.

    It answers with the result as JSON; what cannot be served, a bad argument, or a run that stopped
    with its place saved, is an answer too, in one line. Progress goes to the agent's `custom`
    stream.

    Args:
        context: how runs are done.
        dimensions: dimensions at which kernels are verified, by name in the reference.
        reading: how references are read where the agent says nothing else.

    Example:
        tool = kernelblaster.as_tool(RunContext(gpu="H100", iterations=1))
        answer = tool.invoke({"task": "examples/softmax.py"})
    """
    settings = dict(context or RunContext()) | {"dimensions": dimensions}
    usual = dict(checked(Reading, dict(reading or {})))

    async def optimize_kernel(task: str, start: str | None = None, **said: Any) -> str:
        """Make a verified, faster CUDA kernel for a PyTorch reference; takes minutes."""
        read = usual | {name: value for name, value in said.items() if value is not None}
        try:
            result = await aoptimize(
                task, start=start, reading=read, watch=progress_writer(), **settings
            )
        except (UserError, OSError, Capped, Waiting, Undecided) as error:
            raise ToolException(short(str(error))) from error
        left_out = {"lessons", "path", "steps"}
        if len(result.source) > LONGEST_ANSWER // 2:
            left_out.add("source")  # It is in best_source.
        return result.model_dump_json(exclude=left_out, exclude_none=True)

    def wait_for_it(task: str, start: str | None = None, **said: Any) -> str:
        return _wait_for(optimize_kernel(task, start, **said))

    return StructuredTool.from_function(
        func=wait_for_it,
        coroutine=optimize_kernel,
        name="optimize_kernel",
        description=optimize_kernel.__doc__,
        args_schema=ToolInput,
        handle_tool_error=True,
        handle_validation_error=complaint("optimize_kernel", ToolInput),
    )
