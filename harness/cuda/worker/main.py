"""The long-lived process beside one GPU: `python -m ...cuda.worker.main`, spoken to in JSON.

It imports PyTorch and waits. The first line on standard input is the greeting, each further one a
request; both carry a token. Answers and {"stage": ...} notices go to a private descriptor with that
token. Standard output and error lead elsewhere, so that nothing a candidate prints can be taken for
an answer. The process ends when its input does: it cannot outlive its parent.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .isolation import give_up, shut_off

if TYPE_CHECKING:
    from ...records.tasks import Task
    from ...task.claims import ClaimedInput
    from ..launching.candidate import Program
    from .session import CudaSession
    from .task_context import TaskContext

TASKS_KEPT = 2
OTHERS_PART = 0.1
"""Of a GPU's memory: what is in use outside of this process, a context of CUDA's own left aside."""


def main() -> None:
    """Answer requests until the input ends or the GPU's context is lost."""
    protocol = _redirect()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    missing = give_up()
    fault: Exception | None = None
    try:
        # Before the greeting, which may come much later: until then it costs the GPU nothing.
        import torch

        from . import measure_run, verify_run  # noqa: F401
        from .session import CudaSession
    except Exception as error:  # whatever a broken PyTorch raises is told where it is asked for
        fault = error
    first = sys.stdin.readline()
    if not first:
        _leave()
    greeting = json.loads(first)
    enclosed = bool(greeting["enclosed"])
    try:
        if fault is not None:
            raise fault
        enclosed = enclosed and torch.version.cuda is not None
        missing += shut_off([Path(path) for path in greeting["writable"]]) if enclosed else [
            "a file system of its own (CUDA does not start with it)"
        ]
        threading.Thread(target=_read, args=(lines,), daemon=True).start()
        machine = CudaSession(Path(greeting["replay"]))
        worker = Worker(machine, Path(greeting["scratch"]), Path(greeting["kept"]))
        hello = worker.hello() | {"isolation_missing": missing}
    except Exception as error:  # PyTorch raises many types where CUDA does not work
        failure = {"machine_error": _one_line(error), "enclosed": enclosed}
        _send(protocol, greeting["token"], failure)
        _leave()
    _send(protocol, greeting["token"], hello)
    while True:
        request = json.loads(lines.get())
        token = request["token"]

        def stage(name: str, token: str = token) -> None:
            _send(protocol, token, {"stage": name})

        answer = worker.serve(request, stage)
        _send(protocol, token, answer)
        if answer.get("broken"):
            _leave()


class Worker:
    """The GPU and the tasks that were loaded for it.

    Args:
        scratch: a folder for what ends with the process.
        kept: one for what is known of tasks; None where nothing is to be kept.
    """

    def __init__(self, machine: CudaSession, scratch: Path, kept: Path | None = None) -> None:
        self.machine = machine
        self.scratch = scratch
        self.kept = kept
        self._tasks: dict[str, TaskContext] = {}
        self._without_double: set[str] = set()
        """Tasks for which memory did not suffice beside answers in double precision."""
        self._leaked = 0

    def hello(self) -> dict[str, Any]:
        """Return what the parent must know of this GPU and this PyTorch."""
        import torch

        properties = self.machine.properties
        return {
            "gpu": properties.name,
            "capability": [properties.major, properties.minor],
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
            "sms": properties.multi_processor_count,
            "told": self.machine.told_to_host_code(),
        }

    def serve(self, request: dict[str, Any], stage: Callable[[str], None]) -> dict[str, Any]:
        """Return the answer to a request; whatever goes wrong is in it."""
        reached: set[str] = set()

        def reach(name: str) -> None:
            reached.add(name)
            stage(name)

        # Nobody says whose memory it is: while others come and go nothing is known of leaks.
        before = self.machine.bytes_outside_pytorch() if request.get("alone", True) else None
        answer = self._answer(request, reach)
        # Beside a candidate it may be that one's memory, and it would be loaded twice.
        lacking = answer.get("out_of_memory") and "candidate" not in reached
        if lacking and self._does_without_double(request["task"]):
            answer = self._answer(request, reach)
        answer["candidate_loaded"] = "candidate" in reached
        answer["broken"] = self.machine.is_broken()
        if not answer["broken"]:
            if request["op"] != "prepare":  # What it prepared, a measurement finds.
                self._let_go()
            outside = self.machine.bytes_outside_pytorch()  # PyTorch gives back what it holds.
            if before is not None:
                self._leaked += max(0, outside - before)
            answer["leaked_bytes"] = self._leaked
        return answer

    def _answer(self, request: dict[str, Any], stage: Callable[[str], None]) -> dict[str, Any]:
        """Return what `_serve` does, or what it raises as an answer."""
        import torch

        from ...reference.loading.model import ReferenceFault, lacks_gpu_memory

        try:
            stage("reference")
            return self._serve(request, stage)
        except ReferenceFault as fault:
            if not lacks_gpu_memory(fault):
                return {"task_error": str(fault)}
            traceback.print_exc()  # What took the memory is told by the log alone.
        except torch.OutOfMemoryError:
            traceback.print_exc()
        except Exception as error:  # a fault of the harness itself: told, not hidden
            traceback.print_exc()
            return {"worker_error": _one_line(error)}
        # Only here are the frames gone whose tensors the exception held.
        return self._too_large()

    def _does_without_double(self, described: dict[str, Any]) -> bool:
        """Say whether a task may be asked again, from now on without double precision."""
        from ...records.tasks import Task

        task = Task.model_validate(described)
        if not self._is_large(task) or task.id in self._without_double:
            return False
        self._without_double.add(task.id)
        return True

    def _is_large(self, task: Task) -> bool:
        """Say whether the GPU's memory may not suffice for answers in double precision."""
        from ..gpu_lock import DOUBLE_PART, leaves_room

        memory = self.machine.properties.total_memory
        return not leaves_room(task.full.tensors, memory, DOUBLE_PART)

    def _serve(self, request: dict[str, Any], stage: Callable[[str], None]) -> dict[str, Any]:
        from ...judge.timing import Stopping
        from .input_files import forget_inputs, write_inputs
        from .measure_run import measure_candidates, prepare_measuring, rehearse_measuring
        from .verify_run import rehearse_verifying, verify

        context = self._context(request["task"])
        if request["op"] == "rehearse":
            rehearse = {"verify": rehearse_verifying, "measure": rehearse_measuring}[request["of"]]
            rehearse(self.machine, context)
            return {}
        if request["op"] == "prepare":
            if request["with_eager"]:
                prepare_measuring(
                    context,
                    with_compile=request["with_compile"],
                    compile_anew=request["compile_anew"],
                )
            return {}
        if request["op"] == "inputs":
            try:
                return {"inputs": write_inputs(context, self.scratch)}
            except OSError as error:
                forget_inputs(context.task.id, self.scratch)
                return {"no_inputs": f"the task's inputs cannot be written: {_one_line(error)}"}
        if request["op"] == "verify":
            program, secret = _program(request["program"]), request.get("secret", 0)
            claim = _claim(request.get("claim"))
            return verify(self.machine, context, program, stage, secret, claim)
        return measure_candidates(
            self.machine,
            context,
            {name: _program(described) for name, described in request["programs"].items()},
            stage,
            stopping=Stopping.model_validate(request["stopping"]),
            seed=request["seed"],
            with_eager=request["with_eager"],
            with_compile=request["with_compile"],
            compile_anew=request["compile_anew"],
        )

    def _context(self, described: dict[str, Any]) -> TaskContext:
        from ...records.tasks import Task
        from .kept import Kept
        from .task_context import TaskContext

        task = Task.model_validate(described)
        context = self._tasks.pop(task.id, None)
        if context is None:
            kept = Kept(self.kept, task, self.machine.name) if self.kept else None
            context = TaskContext(
                task, str(self.machine.device), kept, double_is_dispensable=self._is_large(task)
            )
            context.reference.lacked_memory_for_double = task.id in self._without_double
        self._tasks[task.id] = context
        while len(self._tasks) > TASKS_KEPT:
            self._forget(next(iter(self._tasks)))
        return context

    def _let_go(self) -> None:
        """Give back what others on the GPU need more than the next request here would."""
        from ..gpu_lock import HELD_PART, leaves_room

        memory = self.machine.properties.total_memory
        for context in self._tasks.values():
            if not leaves_room(context.tensors, memory, HELD_PART):
                context.let_go()

    def _forget(self, task: str) -> None:
        """Let go of a task's tensors and of the files of its inputs."""
        from .input_files import forget_inputs

        del self._tasks[task]
        forget_inputs(task, self.scratch)

    def _too_large(self) -> dict[str, Any]:
        """Return the answer for a task that the GPU's memory cannot hold, and let go of all.

        `out_of_memory` tells the parent that a candidate may have taken that memory.
        """
        for task in list(self._tasks):
            self._forget(task)
        total = self.machine.properties.total_memory
        others = self.machine.bytes_outside_pytorch()
        has = f"this GPU has ({total / 2**30:.0f} GiB): choose smaller sizes"
        if others > OTHERS_PART * total:
            has = (
                f"others leave free on this GPU ({(total - others) / 2**30:.0f} of "
                f"{total / 2**30:.0f} GiB): wait for them, or choose smaller sizes"
            )
        return {
            "out_of_memory": True,
            "task_error": "the reference at its full dimensions, with what verifying it takes, "
            f"needs more memory than {has}",
        }


def _program(described: dict[str, Any]) -> Program:
    from pydantic import TypeAdapter

    from ...host.plan import Plan
    from ..launching.candidate import Program

    plan = TypeAdapter(Plan).validate_python(described["plan"])
    return Program(Path(described["image"]), plan)


def _claim(described: dict[str, Any] | None) -> ClaimedInput | None:
    from ...task.claims import ClaimedInput

    return None if described is None else ClaimedInput.model_validate(described)


def _redirect() -> IO[bytes]:
    """Return the protocol's output; descriptors 1 and 2 lead to nothing and to the log."""
    protocol = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    return protocol


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    # The parent is gone or wants this process gone, whatever the candidate is doing.
    _leave()


def _send(protocol: IO[bytes], token: str, message: dict[str, Any]) -> None:
    protocol.write(json.dumps(message | {"token": token}).encode() + b"\n")
    protocol.flush()


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _leave() -> None:
    """End without destructors: a candidate's exit handlers are not run."""
    os._exit(3)


if __name__ == "__main__":
    main()
