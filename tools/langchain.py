"""Compile, verify, profile and knowledge search as LangChain tools, for agents that call tools."""

from __future__ import annotations

import json
from pathlib import Path

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from ..harness.devices.protocol import Device
from ..harness.records import Record, Task
from ..memory.records import PolicyContext
from ..memory.run.run_store import RunStore
from .evaluation.evaluator import Evaluator
from .workspace import open_knowledge


class SourceInput(BaseModel):
    """Input of the tools that judge a candidate."""

    source: str = Field(description="Complete text of the CUDA source that defines `launch`.")


class SearchInput(BaseModel):
    """Input of the knowledge search."""

    state: str = Field(description="Id of a performance state, as `kb show` lists them.")


def evaluation_tools(device: Device, store: RunStore, task: Task) -> list[BaseTool]:
    """Return compile_kernel, verify_kernel and profile_kernel, bound to one task and device.

    Each answers with JSON text that a model can read; a candidate's failure is an answer, not an
    exception. Finished stages are not repeated.
    """
    evaluator = Evaluator(device, store)

    async def compile_kernel(source: str) -> str:
        """Compile a CUDA source and say what the compiler and the symbol check found."""
        return _text(await evaluator.compile(task, source))

    async def verify_kernel(source: str) -> str:
        """Run a CUDA source on every test case and compare it with the PyTorch reference."""
        return _text(await evaluator.verify(task, source))

    async def profile_kernel(source: str) -> str:
        """Profile and time a CUDA source at full dimensions."""
        return _text(await evaluator.profile(task, source))

    return [
        StructuredTool.from_function(coroutine=function, args_schema=SourceInput)
        for function in (compile_kernel, verify_kernel, profile_kernel)
    ]


def knowledge_tool(directory: Path, context: PolicyContext) -> BaseTool:
    """Return search_knowledge: a state's techniques with expected gains, and its lessons."""

    def search_knowledge(state: str) -> str:
        """List what the knowledge base would try in a performance state, best first."""
        with open_knowledge(str(directory)) as knowledge:
            if knowledge.state(state) is None:
                known = ", ".join(found.id for found in knowledge.states())
                return f"no state {state!r}; known states: {known}"
            candidates = knowledge.candidates(state, context)
            lessons = knowledge.lessons(state=state)
        return json.dumps(
            {
                "techniques": [
                    {
                        "technique": optimization.technique,
                        "expected_log_gain": round(expected.mean_log, 4),
                        "success_probability": round(expected.success_probability, 4),
                        "tries": expected.trials,
                        "applies_when": optimization.applies_when,
                        "avoid_when": optimization.avoid_when,
                        "notes": optimization.notes,
                    }
                    for optimization, expected in candidates
                ],
                "lessons": [lesson.text for lesson in lessons],
            }
        )

    return StructuredTool.from_function(search_knowledge, args_schema=SearchInput)


def _text(record: Record) -> str:
    """Return a stage's record as JSON, without the fields that only this machine needs."""
    return record.model_dump_json(
        exclude={"build": {"directory", "key"}, "stage": {"build": {"directory", "key"}}},
        exclude_none=True,
    )
