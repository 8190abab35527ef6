"""unroll_loop: innermost loops repeat their body, so that loads overlap and counting costs less."""

from __future__ import annotations

import re

from tree_sitter import Node

from ...harness.records.tasks import Task
from ..rewriting.records import Inapplicable, Kernels, Outcome, Parameters, Rewritten
from ..rewriting.source.loops import counting_loop
from ..rewriting.source.syntax import Source, descendants, text_of
from .conditions import NO_LOOP
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `factor` is how often a body is repeated."""
    return Technique(
        name="unroll_loop",
        moves=("-alu",),
        description=(
            "Unroll the inner loop so that several independent loads are in flight and loop "
            "control is paid less often."
        ),
        applies_when=(
            "A loop with a long trip count and independent iterations; stalls wait on memory (long "
            "scoreboard) while bandwidth is far from its peak, or loop control is a visible share "
            "of the instructions."
        ),
        avoid_when=(
            "The compiler already unrolled it (look at the number of loads in a row), or the loop "
            "body is large and would overflow the instruction cache."
        ),
        side_effects="More registers; code grows.",
        notes=(
            "#pragma unroll N before the loop; with constexpr trip counts full unrolling also "
            "turns array indices into registers. For reductions keep several independent "
            "accumulators, otherwise the additions still form one chain."
        ),
        parameters={"factor": (4, 8, 2)},
        sources=('CUDA C++ Programming Guide, "#pragma unroll"',),
        change=_apply,
        unfit=NO_LOOP,
    )


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
    factor = parameters["factor"]
    parsed = Source(source)
    changed = []
    for kernel in parsed.kernels():
        for loop in descendants(kernel.body, "for_statement"):
            body = loop.child_by_field_name("body")
            if body is None or counting_loop(loop) is None or _holds_a_rolled_loop(body):
                continue
            pragma = _pragma(loop)
            if pragma is None:
                margin = " " * loop.start_point[1]
                parsed.insert_before(loop, f"#pragma unroll {factor}\n{margin}")
            else:
                match = re.fullmatch(r"#pragma\s+unroll\s+(\d+)\s*", text_of(pragma))
                if match is None or int(match[1]) == factor:
                    continue
                ending = "\n" if text_of(pragma).endswith("\n") else ""
                parsed.replace(pragma, f"#pragma unroll {factor}{ending}")
            changed.append(kernel.name)
    if not changed:
        return Inapplicable(reason=f"no innermost loop is left to unroll by {factor}")
    names = ", ".join(dict.fromkeys(changed))
    return Rewritten(source=parsed.result(), note=f"{names}: innermost loops unrolled by {factor}")


def _holds_a_rolled_loop(body: Node) -> bool:
    """Whether a loop inside stays a loop: one that is unrolled whole does not."""
    for inner in descendants(body, "for_statement", "while_statement", "do_statement"):
        pragma = _pragma(inner)
        if pragma is None or text_of(pragma).split() != ["#pragma", "unroll"]:
            return True
    return False


def _pragma(loop: Node) -> Node | None:
    before = loop.prev_named_sibling
    if before is not None and before.type == "preproc_call" and "unroll" in text_of(before):
        return before
    return None
