"""Tools about a kernel: compile it, run it, profile it, apply a technique to it."""

from __future__ import annotations

import asyncio
import re

from ...harness.devices.gates import Passage
from ...harness.records.builds import Diagnostic
from ...harness.records.evaluations import Evaluation, StageResult
from ...harness.records.outcomes import Outcome
from ...harness.task.contract import signature
from ...harness.vetting.symbols import bare_name, readable
from ..evaluation.file import NO_KERNEL
from ..models.code_reply import fenced
from ..models.reply_forms import MalformedReply
from ..rewriting.records import Inapplicable
from ..rewriting.target import kernel_texts
from ..techniques.catalogue import techniques
from ..wording.device import device_text
from ..wording.failures import failure_text, finding_text
from ..wording.listing import hot_lines
from ..wording.measurements import profile_text, summary_text
from ..wording.templates import contract_text, task_text
from .arguments import short
from .desk import Desk, Kernel, piece
from .knowledge import state_text, technique_named

_OF_LAUNCH = re.compile(r"\blaunch\b")


async def show_task(desk: Desk) -> str:
    """Show what a kernel must compute: `launch`, task.cuh, shapes, tolerance, what is refused."""
    return await asyncio.to_thread(_shown, desk)


async def compile_kernel(desk: Desk, source: str) -> str:
    """Compile a CUDA file with nvcc and check that it does nothing that is refused."""
    kernel = await asyncio.to_thread(desk.kernel, source)
    verdict = await _compiled(desk, kernel)
    if verdict.outcome is not Outcome.PASSED:
        return _failed(desk, kernel, verdict)
    kernels = verdict.build.kernels if verdict.build else ()
    lines = [f"{kernel.id} compiles. Next: run_kernel, then profile_kernel; the id will do."]
    for each in kernels:
        spilled = each.spill_store_bytes + each.spill_load_bytes
        lines.append(
            f"- {readable(each.kernel)}: {each.registers} registers a thread, "
            f"{each.static_shared_bytes} bytes of static shared memory, "
            + (f"{spilled} bytes spilled" if spilled else "nothing spilled")
        )
    return "\n".join([*lines, *_notes(verdict.diagnostics, kernel.source)])


async def run_kernel(desk: Desk, source: str) -> str:
    """Run a CUDA file on every test case and compare with PyTorch: is it right?"""
    kernel = await asyncio.to_thread(desk.kernel, source)
    verdict = await _compiled(desk, kernel)
    if verdict.outcome is Outcome.PASSED:
        verdict = await desk.evaluator.verify(desk.task, kernel.source)
        await _note_failure(desk, kernel, verdict)
    if verdict.outcome is not Outcome.PASSED:
        return _failed(desk, kernel, verdict)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in verdict.facts.items())
    lines = [f"{kernel.id} is right on every case{f' ({facts})' if facts else ''}."]
    return "\n".join([*lines, *_notes(verdict.diagnostics, kernel.source)])


async def profile_kernel(desk: Desk, source: str) -> str:
    """Time and profile a CUDA file at full dimensions; it is compiled and run on all cases first.

    Says what limits it, with the main counters, and which performance state it is in.
    """
    kernel = await asyncio.to_thread(desk.kernel, source)
    evaluation = await desk.evaluator.evaluate(desk.task, kernel.source)
    timing, profile = evaluation.timing, evaluation.profile
    if timing is None or profile is None:
        return _failed(desk, kernel, evaluation)
    hot = "; ".join(f"{line}: {words}" for line, words in hot_lines(profile))
    lines = [
        f"{kernel.id} passed. {summary_text(desk.task, profile, timing)}",
        profile_text(profile),
        *([f"Hot lines: {hot}"] if hot else []),
        *_notes(evaluation.diagnostics, kernel.source),
        await asyncio.to_thread(state_text, desk, profile),
    ]
    return "\n".join(lines)


async def apply_technique(
    desk: Desk, technique: str, source: str, parameters: dict[str, int] | None = None,
    kernel: str = "",
) -> str:  # fmt: skip
    """Have a technique's built-in rewrite change a CUDA file; gives the new file, not measured."""
    name = await asyncio.to_thread(technique_named, desk, technique)
    known = techniques().get(name)
    if known is None or known.rewrite is None:
        raise MalformedReply(
            f"{name} has no built-in rewrite: write it yourself; describe_technique says how"
        )
    file = await asyncio.to_thread(desk.kernel, source)
    if kernel and bare_name(kernel) not in (texts := kernel_texts(file.source)):
        return short(f"{file.id} has no kernel {kernel} that rewrites read; it has: "
                     f"{', '.join(texts) or 'none'}.")  # fmt: skip
    outcome = await asyncio.to_thread(
        known.rewrite.apply, file.source, desk.task, parameters or {}, [kernel] if kernel else []
    )
    if isinstance(outcome, Inapplicable):
        return short(f"{name} cannot be applied to {file.id}: {outcome.reason}.")
    made = await asyncio.to_thread(desk.keep, outcome.source)
    return f"{made.id}: {outcome.note}. Not checked yet: run_kernel.\n{fenced(made.source)}"


async def read_more(desk: Desk, reference: str, part: int = 1) -> str:
    """Read a part of an answer that was too long, or of a kernel by its id."""
    text = await asyncio.to_thread(desk.text, reference.strip())
    return piece(text, reference.strip(), part)


def _shown(desk: Desk) -> str:
    task, identity = desk.task, desk.identity
    return "\n".join(
        (
            f"{task.name} ({task.path}): {task.op_class}, {task.dtype}, on a {identity.kind} "
            f"{identity.gpu}.",
            contract_text(task, identity.arch),
            task_text(task),
            "# The device",
            device_text(identity.gpu, identity.arch, identity.kind),
        )
    )


async def _compiled(desk: Desk, kernel: Kernel) -> StageResult:
    verdict = await desk.evaluator.compile(desk.task, kernel.source)
    await _note_failure(desk, kernel, verdict)
    return verdict


async def _note_failure(desk: Desk, kernel: Kernel, verdict: StageResult) -> None:
    """Store a failure as the kernel's evaluation: it is counted like any other."""
    if verdict.outcome is not Outcome.PASSED:
        await desk.evaluator.conclude(desk.task, kernel.source, Passage(verified=verdict))


def _failed(desk: Desk, kernel: Kernel, verdict: StageResult | Evaluation) -> str:
    """Return why a kernel was refused, with the exact `launch` where that is what is wrong."""
    findings = verdict.diagnostics
    text = failure_text(verdict.outcome, verdict.reason, findings, kernel.source)
    lines = [f"{kernel.id}: {verdict.outcome.replace('_', ' ')}. {text}"]
    if any(each.kind in NO_KERNEL or _OF_LAUNCH.search(each.message) for each in findings):
        lines.append(f"launch must be, word for word:\n  {signature(desk.task)}")
    return "\n".join(lines)


def _notes(findings: tuple[Diagnostic, ...], source: str) -> list[str]:
    """Return what is told of a kernel that passed."""
    return [finding_text([finding], source) for finding in findings]
