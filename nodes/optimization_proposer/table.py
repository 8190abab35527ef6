"""What could be tried on a kernel: known techniques, and which may not be proposed and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...harness.records.evaluations import Evaluation
from ...harness.records.tasks import Task
from ...harness.vetting.symbols import bare_name
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.policy.policy import Prospect
from ...memory.records.lessons import Lesson
from ...memory.records.optimizations import Optimization
from ...memory.records.policy import PolicyContext
from ...memory.records.states import PerformanceState
from ...tools.techniques.conditions import APPLIED_GAIN, AtHand
from ..common.outlook.learned_notes import LEARNED
from ..common.outlook.policy_context import aimed_at
from ..common.outlook.untried import NEW_STRENGTH
from ..records.kernels import TechniqueStep

FORBIDDEN: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset("cublas cublaslt cudnn cutlass cute cufft cusparse thrust pytorch torch".split()),
        "libraries are refused: the file computes by itself",
    ),
    (frozenset({"graph", "graphs"}), "CUDA graphs are refused: launch() only enqueues work"),
    (frozenset({"multi_stream", "multiple_streams", "streams"}),
     "all work goes to the stream given"),
    (frozenset({"memoize", "memoization", "cache_results", "cache_output", "reuse_results"}),
     "nothing may be kept from one call to the next"),
    (frozenset({"compiler_flags", "nvcc_flags", "compile_flags", "use_fast_math_flag"}),
     "the file is built with fixed options"),
    (frozenset({"skip_computation", "hard_code", "hardcode", "hardcoded", "precompute_output"}),
     "the whole result is computed from the inputs"),
)  # fmt: skip
"""Words of a technique's name, and why no file may do that."""


class Table(NamedTuple):
    """What could be tried on a kernel, as of the iteration's snapshot."""

    where: PerformanceState
    context: PolicyContext
    known: list[Prospect]
    """Of the knowledge base, for the state and its neighbours, the best first."""
    unlisted: list[Prospect]
    """What a built-in rewrite could do though the knowledge base does not list it there."""
    reasons: Mapping[str, str | None]
    """Why a built-in rewrite does not apply to the code; None where it does."""
    inapplicable: int
    """Techniques offered that no built-in rewrite can do to the code."""
    refused: Mapping[str, str]
    """Techniques that may not be proposed, and why."""
    withheld: Mapping[str, str]
    """Those of them that conditions or deprecations keep from this kernel, and why."""
    unfit: Mapping[str, str]
    """Why techniques that a model could write cannot act on any kernel of the program."""
    seed: frozenset[str]
    """Names of the seed's techniques, which the knowledge base describes wherever they are."""
    described: Mapping[str, Optimization]
    """The others that somebody described: models, in this run or in earlier ones."""
    lessons: list[Lesson]
    remembers: bool
    """Whether there is any memory that gains are expected by."""
    written_by_model: bool
    """Whether lowering can write what no built-in rewrite can."""
    by_rewrite: bool = True
    """Whether what a built-in rewrite can do is done by it."""
    changes: Callable[[str, str], bool] = lambda technique, kernel: False
    """Says whether a technique's built-in rewrite can change a kernel of the program."""

    def shown(self) -> list[Prospect]:
        """Return the techniques that can be written here, those with the most expected first."""
        able = [
            each._replace(optimization=self.described.get(technique, each.optimization))
            for each in (*self.known, *self.unlisted)
            if self.refusal(technique := each.optimization.technique) is None and each.settings
        ]
        return sorted(able, key=lambda each: (-each.expected.score, each.optimization.technique))

    def cards(self) -> dict[str, Optimization | None]:
        """Return every technique that a model can be asked to write: what is said of it, None where
        the seed says it."""
        if not self.written_by_model:
            return {}
        return {**self.described, **dict.fromkeys(self.seed)}

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the program's kernels, the costliest first."""
        kernel = self.context.kernel
        return tuple(each.kernel for each in kernel.launches) if kernel else ()

    def named(self, launch: str) -> str | None:
        """Return the kernel of the program that somebody means; None where there is none such."""
        known = {bare_name(each): each for each in reversed(self.kernels)}
        return launch if launch in self.kernels else known.get(bare_name(launch))

    def aimed(self, launches: Mapping[str, str]) -> PolicyContext:
        """Return the circumstances where techniques are aimed at kernels, by name of technique.

        A built-in rewrite changes the kernel that is named where it can, else the costliest of
        those that it can.
        """
        if self.context.kernel is None:
            return self.context
        targets = self.context.kernel.targets if self.by_rewrite else {}
        kept = {
            technique: kernel for technique, kernel in launches.items()
            if technique not in targets or self.changes(technique, kernel)
        }  # fmt: skip
        return aimed_at(self.context, kept)

    def refusal(self, technique: str) -> str | None:
        """Return why a technique may not be proposed; None where it may."""
        if technique in self.refused:
            return self.refused[technique]
        if not self.written_by_model:
            return self.reasons.get(technique, "nothing here can write it")
        return forbidden(technique)


def kernel_at_hand(
    task: Task, source: str, evaluation: Evaluation, path: Iterable[TechniqueStep]
) -> AtHand:
    """Return what says whether a technique can act on a kernel; `path` is how it came about."""
    assert evaluation.profile is not None
    applied = frozenset(
        name for step in path if step.gain > APPLIED_GAIN for name in step.names
    )
    return AtHand(task, source, evaluation.profile, applied)


def forbidden(technique: str) -> str | None:
    """Return why no file may do what a technique's name says; None where nothing is against it."""
    padded = f"_{technique}_"
    return next(
        (why for words, why in FORBIDDEN if any(f"_{word}_" in padded for word in words)), None
    )


def described_in(knowledge: KnowledgeBase, device_kind: str, at: int) -> dict[str, Optimization]:
    """Return the cards of techniques that models thought of in earlier runs.

    Their prior is neutral and their notes are without what was measured: what was learned of them
    under other states says little of this one.
    """
    listed = knowledge.snapshot(at).optimizations(device_kind)
    return {
        technique: optimization.model_copy(
            update={
                "prior_log_gain": 0.0,
                "prior_strength": NEW_STRENGTH,
                "prior_evidence": (),
                "notes": optimization.notes.partition(LEARNED)[0],
            }
        )
        for _, under in sorted(listed.items())
        for technique, optimization in under.items()
        if technique not in knowledge.seed().techniques
    }


def refusals(
    tried: Iterable[str], deprecated: frozenset[str], lessons: Iterable[Lesson], state_id: str
) -> dict[str, str]:
    """Return the techniques that may not be proposed in a state, and why."""
    why = "tried on this file, or without gain since the last gain, or rejected"
    refused = dict.fromkeys(tried, why) | dict.fromkeys(deprecated, "deprecated here")
    for lesson in lessons:
        if lesson.kind == "deprecation" and lesson.state == state_id:
            if lesson.technique in deprecated:
                refused[str(lesson.technique)] = lesson.text
    return refused
