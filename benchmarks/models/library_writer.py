"""A chat model that writes kernels as the library does, with a technique's first setting each time.

    PYTHONPATH=benchmarks/models python -m kernelblaster bench benchmarks/suites/kinds --out DIR \
        --model kernel_writer=import:library_writer:library_writer \
        --policy 'kernelblaster[sweeps=false],kernelblaster' --budget evaluations=12

It stands for a model that names its parameters and never tunes them: what a sweep of the numbers
that its kernels name gains (`kernelblaster.nodes.run.search.sweep`) is measured with it.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from answering import Answering, text_of
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.tools.rewriting.records import Inapplicable
from kernelblaster.tools.techniques.catalogue import rewrites

TASKS = Path(__file__).resolve().parents[1] / "suites" / "kinds"


@functools.cache
def task_of(name: str) -> Task:
    """Return a task of the suite."""
    return load_task_now(TASKS / f"{name}.py")


def source_of(prompt: str) -> str:
    """Return the file that a prompt lists, without the numbers of its lines."""
    _, _, after = prompt.partition("## The file now")
    text = after.partition("```cuda\n")[2].partition("\n```")[0]
    return "\n".join(re.sub(r"^ *\d+[> ]?", "", line) for line in text.split("\n")) + "\n"


def reply_to(prompt: str) -> str:
    """Return the file with the technique that a prompt asks for, or that it does not apply."""
    (name,) = re.findall(r"^# The task: (\w+)", prompt, re.MULTILINE)
    (technique,) = re.findall(r"^Apply (\w+) where the figures", prompt, re.MULTILINE)
    rewrite = next((each for each in rewrites() if each.technique == technique), None)
    if rewrite is None:
        return "NOT APPLICABLE: the library has no rewrite of it"
    first = {parameter: values[0] for parameter, values in rewrite.parameters.items()}
    made = rewrite.apply(source_of(prompt), task_of(name), first)
    if isinstance(made, Inapplicable):
        return f"NOT APPLICABLE: {made.reason}"
    said = f"PARAMETERS: {json.dumps(first)}\n" if first else ""
    return f"{said}```cuda\n{made.source}```\n"


class LibraryWriter(Answering):
    """Replies with what a built-in rewrite makes of the file that it is shown."""

    def reply_to(self, messages: list[BaseMessage], role: str) -> str:
        """Return the file with the technique, or that it does not apply."""
        if any(message.type == "ai" for message in messages):  # A repair, of which it knows none.
            return "NOT APPLICABLE: it failed"
        return reply_to(text_of(messages))


def library_writer() -> BaseChatModel:
    """Return the model."""
    return LibraryWriter()
