"""A device and a library of rewrites made of text, so that graph tests run in a second.

A "kernel" is text with a line `us: N`; rewrites append a line and change N or the outcome. The
graph, its nodes, stores, knowledge base and checkpoints are the real ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.protocol import (
    Capability,
    Device,
    Measurement,
)
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.builds import Diagnostic
from kernelblaster.harness.records.evaluations import DeviceIdentity, StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.records.timings import Provenance, Timing
from kernelblaster.harness.task.claims import NOT_AN_INPUT, ClaimedInput
from kernelblaster.tools.first_kernel.writer import InitialKernel
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten

INITIAL = "us: 100.0\n"


@dataclass(frozen=True)
class TextRewrite:
    """Multiply the time, or make the kernel fail, once."""

    technique: str
    factor: float = 1.0
    outcome: str = "passed"
    parameters: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def apply(
        self, source: str, task: Task, parameters: Any = None, kernels: Any = ()
    ) -> Rewritten | Inapplicable:
        if f"did: {self.technique}\n" in source:
            return Inapplicable(reason="done already")
        scaled = re.sub(
            r"us: ([\d.]+)", lambda found: f"us: {float(found[1]) * self.factor:.6f}", source
        )
        values = sorted((parameters or {}).items())
        lines = [f"did: {self.technique}\n", *(f"{k}={v}\n" for k, v in values)]
        if self.outcome != "passed":
            lines.append(f"outcome: {self.outcome}\n")
        return Rewritten(source=scaled + "".join(lines), note="as told")


REWRITES = (
    TextRewrite("tune_block_size", 0.9, parameters={"block_size": (128, 64, 256, 512, 1024)}),
    TextRewrite("vectorize_memory_access", 0.5),
    TextRewrite("fast_math", 0.8),
    TextRewrite("unroll_loop", 1.3),
    TextRewrite("remove_barriers", 0.1, outcome="race"),
    TextRewrite("drop_max_subtraction", 0.1, outcome="wrong_answer"),
    TextRewrite("register_tiling", 0.1, outcome="compile_error"),
)


@dataclass(frozen=True)
class TextDevice(Device):
    """Reads its verdicts off the text; logs every stage it runs to $TEXT_DEVICE_LOG."""

    gpu: str = "H100"

    @property
    def identity(self) -> DeviceIdentity:
        return DeviceIdentity(kind="simulated", gpu=self.gpu, arch="sm_90", toolchain="text")

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.COUNTERS, Capability.CLAIMS})

    async def compile(self, task: Task, source: str) -> StageResult:
        if "without launch\n" in source:
            missing = Diagnostic(kind="missing_launch", message="there is no launch")
            return StageResult(
                outcome=Outcome.COMPILE_ERROR, reason="no launch", diagnostics=(missing,)
            )
        return await asyncio.to_thread(
            self._stage, "compile", source, {"compile_error", "forbidden"}
        )

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        return await asyncio.to_thread(
            self._stage, "verify", source, {"race", "wrong_answer", "crashed", "timed_out"}
        )

    async def verify_claim(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        """Wrong where the text says `wrong at: V` and the claim has a tensor hold V everywhere."""
        stage = await asyncio.to_thread(self._stage, "claim", source, set())
        if any(fill.first > 1000 for fill in claim.tensors):
            return stage.model_copy(update={"facts": {NOT_AN_INPUT: "x is not so large"}})
        values = {f"{fill.first:g}" for fill in claim.tensors if fill.kind == "constant"}
        if not values & set(re.findall(r"wrong at: (\S+)", source)):
            return stage
        told = f"out0[0]: expected 1, got 2 (case claimed-{claim.id})"
        return StageResult(
            outcome=Outcome.WRONG_ANSWER, reason=told,
            diagnostics=(Diagnostic(kind="mismatch", message=told),),
        )  # fmt: skip

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        stage = await asyncio.to_thread(self._stage, "profile", source, {"profiler_unavailable"})
        if stage.outcome is not Outcome.PASSED:
            return Measurement(stage=stage)
        found = re.search(r"us: ([\d.]+)", source)
        assert found is not None
        us = float(found[1])
        launch = LaunchProfile(
            kernel="k",
            grid=(1, 1, 1),
            block=(256, 1, 1),
            microseconds=us,
            metrics={"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": min(100.0, us)},
            terms={"dram": us},
            bottleneck="dram" if us > 40 else "latency",
        )
        timing = Timing(
            microseconds=us,
            samples=(us,),
            interval=(us, us),
            method="text",
            provenance=Provenance.SIMULATED,
        )
        profile = Profile(launches=(launch,), gpu=self.gpu, provenance=Provenance.SIMULATED)
        return Measurement(stage=stage, timing=timing, profile=profile)

    def _stage(self, stage: str, source: str, failing: set[str]) -> StageResult:
        log = os.environ.get("TEXT_DEVICE_LOG")
        if log:
            import hashlib

            with open(log, "a") as file:
                file.write(f"{stage} {hashlib.sha256(source.encode()).hexdigest()}\n")
        time.sleep(float(os.environ.get("TEXT_DEVICE_SECONDS", "0")))
        found = re.search(r"outcome: (\w+)", source)
        if found and found[1] in failing:
            return StageResult(outcome=Outcome(found[1]), reason=f"the text says {found[1]}")
        return StageResult(outcome=Outcome.PASSED)


def text_task(name: str = "text") -> Task:
    """Return a task that only the text device can serve."""
    variant = TaskVariant(
        name="full",
        dimensions={"N": 1024},
        tensors=(
            TensorSpec(name="out0", shape=(1024,), dtype="float32", role="output"),
            TensorSpec(name="x", shape=(1024,), dtype="float32", role="input"),
        ),
    )
    return Task(
        name=name,
        path=f"{name}.py",
        reference_sha256="0" * 64,
        source="",
        op_class="elementwise",
        dtype="float32",
        tolerance=Tolerance(absolute=1e-4, relative=1e-4),
        full=variant,
        verify=variant.model_copy(update={"name": "verify"}),
    )


def install(patch: Callable[[str, Any], Any], rewrites: tuple[TextRewrite, ...] = REWRITES) -> None:
    """Put device, task and rewrites in place; `patch(dotted name, value)` does the replacing."""

    async def read_task(path: Path, *_: Any) -> Task:
        return text_task(path.stem)

    def open_device(kind: str, gpu: str) -> TextDevice:
        return TextDevice(gpu)

    async def no_other_shapes(*_: Any, **__: Any) -> tuple[Task, ...]:
        return ()

    def first_rewrites(
        source: str, task: Task, kernels: Any = (), tried: Any = ()
    ) -> dict[str, Rewritten | Inapplicable]:
        return {rewrite.technique: rewrite.apply(source, task, {}) for rewrite in rewrites}

    def applicable(source: str, task: Task) -> dict[str, str | None]:
        return {
            name: verdict.reason if isinstance(verdict, Inapplicable) else None
            for name, verdict in first_rewrites(source, task).items()
        }

    nodes = "kernelblaster.nodes"
    patch("kernelblaster.tools.workspace.open_device", open_device)
    patch("kernelblaster.graph.session.open_device", open_device)
    patch(f"{nodes}.run.beginning.begin.open_device", open_device)
    patch(f"{nodes}.run.beginning.load_task.read_task", read_task)
    write_builtin = f"{nodes}.initial_cuda.builtin.write_builtin"
    patch(write_builtin, lambda task: InitialKernel(source=INITIAL))
    patch(f"{nodes}.initial_cuda.builtin.told_apart_now", lambda task: ())
    patch(f"{nodes}.run.ending.unseen_shapes.unseen_tasks", no_other_shapes)
    patch(f"{nodes}.optimization_proposer.node.first_rewrites", first_rewrites)
    patch(f"{nodes}.optimization_proposer.builtin.rewrites", lambda: rewrites)
    patch(f"{nodes}.kernel_writer.builtin.rewrites", lambda: rewrites)
    patch(f"{nodes}.coder.builtin.rewrites", lambda: rewrites)
    patch(f"{nodes}.judge.builtin.applicable", applicable)


def install_evaluate(patch: Callable[[str, Any], Any]) -> None:
    """Put the text device in place where one file is evaluated alone."""

    async def read_task(path: Path, *_: Any) -> Task:
        return text_task(path.stem)

    patch("kernelblaster.tools.evaluation.file.open_device", lambda kind, gpu: TextDevice(gpu))
    patch("kernelblaster.tools.evaluation.file.load_task", read_task)


def install_agent_tools(patch: Callable[[str, Any], Any]) -> None:
    """Put the text device in place where an agent's tools open one."""
    opening = "kernelblaster.tools.for_agents.opening"
    patch(f"{opening}.open_device", lambda kind, gpu: TextDevice(gpu))
    patch(f"{opening}.load_task_now", lambda path, *_, **__: text_task(path.stem))


def install_bench(patch: Callable[[str, Any], Any]) -> None:
    """Put the text device in place where a bench is planned and its winners are measured again.

    A task called `bad` cannot be read.
    """

    async def read_task(path: Path, *_: Any, **__: Any) -> Task:
        if path.stem == "bad":
            raise UserError(f"{path}: the reference is no Python")
        return text_task(path.stem)

    for module in ("planning", "rerun"):
        patch(f"kernelblaster.bench.{module}.open_device", lambda kind, gpu="": TextDevice(gpu))
    patch("kernelblaster.nodes.run.beginning.load_task.read_task", read_task)
    patch("kernelblaster.bench.rerun.load_task", read_task)
