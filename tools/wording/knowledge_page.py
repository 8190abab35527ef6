"""What a knowledge base has learned, as a page that an engineer reads: what was tried, what came.

Only what was measured stands in its tables, with how often and on what; what is merely assumed is
called so. What it knows of one task alone says so too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ...harness.records.outcomes import Outcome
from ...memory.knowledge.kernels import KnownKernel, TaskSeen
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.policy.facts import comparable
from ...memory.knowledge.snapshots.snapshot import Snapshot
from ...memory.knowledge.states.conditions import KernelFacts, evidence_facts, unmet
from ...memory.knowledge.states.dimensions import DIMENSIONS
from ...memory.knowledge.states.signature import explain, mean_of
from ...memory.records.edits import AddMacro, Deprecate, Revise
from ...memory.records.evidence import Evidence
from ...memory.records.identity import Author
from ...memory.records.states import PerformanceState, Signature
from .edits import edit_text

PAYS = 0.05
"""Log gain from which a technique is said to pay (about 5 %)."""
MATTERS = 0.02
"""Log gain or loss that is told as one, as it stands in the tables; less is what models are off."""
MOST_ASSUMED = 3
"""Techniques of a state that nobody tried there and that are named, the most promising."""
FIGURES = 4
"""Of a situation that are told, the most striking."""
MOST_TOLD = 4
"""Tries of a technique that are told one by one."""
LEAST_ASSUMED = 0.05
"""Log gain that they are assumed to have at least."""
BUILTIN: Author = "builtin"


class _Tries(NamedTuple):
    """Tries of one technique in one state."""

    technique: str
    rows: Sequence[Evidence]

    @property
    def gains(self) -> list[float]:
        return sorted(row.log_gain for row in self.rows if row.log_gain is not None)

    @property
    def middle(self) -> float:
        return median(self.gains) if self.gains else -math.inf

    @property
    def tasks(self) -> int:
        return len({row.task_id for row in self.rows})


def knowledge_page(knowledge: KnowledgeBase, *, measured: bool) -> str:
    """Return Markdown: tasks and their best kernels, situations and what came of techniques there.

    Args:
        knowledge: the base.
        measured: whether what GPUs measured is told, or what the simulated device says.
    """
    kind = "cuda" if measured else "simulated"
    snapshot = knowledge.snapshot()
    rows = _different(
        row for row in snapshot.evidence()
        if comparable(row.device_kind, kind) and row.outcome is not Outcome.NOT_APPLICABLE
    )  # fmt: skip
    blocks = [
        _head(rows, kind),
        _tasks(knowledge, rows, kind),
        *_situations(snapshot, rows, knowledge, kind),
        _together(snapshot, kind),
        _rules(snapshot, kind),
        _in_words(knowledge, kind),
        _glossary(snapshot, rows, kind),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _different(rows: Iterable[Evidence]) -> list[Evidence]:
    """Return the rows without repeats: the same rewrite measured again is told once."""
    found = {
        (row.task_id, row.parent_sha256, row.technique, row.launch, row.child_sha256,
         str(sorted(row.parameters.items())), row.gpu, row.author): row
        for row in rows
    }  # fmt: skip
    return list(found.values())


# Parts ---------------------------------------------------------------------------------------


def _head(rows: Sequence[Evidence], kind: str) -> str:
    gpus = ", ".join(sorted({row.gpu for row in rows}))
    where = f"the simulated {gpus or 'GPU'}" if kind == "simulated" else gpus or "a GPU"
    if not rows:
        return f"# What was learned\n\nNothing was tried on {where} yet."
    writers = Counter(row.author for row in rows)
    told = ", ".join(
        f"{'the library of rewrites' if name == BUILTIN else name} ({count})"
        for name, count in writers.most_common()
    )
    passed = sum(row.log_gain is not None for row in rows)
    trust = (
        " A model of the chip says so, no chip: trust which is larger before how much, and measure "
        "what you take over." if kind == "simulated" else ""
    )  # fmt: skip
    tasks = len({row.task_id for row in rows})
    return (
        f"# What was learned on {where}\n\n"
        f"{len(rows)} tries, of which {passed} gave right answers, on "
        f"{tasks} task{'s' if tasks > 1 else ''}; the kernels written by {told}, compiled by "
        f"{', '.join(sorted({row.toolchain.split(',')[0] for row in rows}))}. Gains are the "
        "time of the whole program before a change over the time after it: 1.20x is faster, 0.80x "
        f"slower; of several tries the median stands, and the least and the most beside it.{trust} "
        "A gain is of the first time that a technique is applied to a kernel; "
        '"again" is with another setting on a kernel that has it. It holds for these kernels, '
        "shapes and types; what is told of one task is a hint. A kernel is right that agrees with "
        "PyTorch within KernelBench's tolerance for its type, or as far as PyTorch's own rounding "
        "goes; it is timed with the L2 flushed."
    )


def _tasks(knowledge: KnowledgeBase, rows: Sequence[Evidence], kind: str) -> str:
    known = {task.task_id: task for task in knowledge.tasks_seen()}
    tried = Counter(row.task_id for row in rows)
    best: dict[tuple[str, str], KnownKernel] = {}
    for kernel in knowledge.kernels_won():
        at = kernel.task_id, kernel.gpu
        if comparable(kernel.device_kind, kind):
            if at not in best or kernel.microseconds < best[at].microseconds:
                best[at] = kernel
    lines = []
    for (task_id, gpu), kernel in sorted(best.items(), key=lambda each: -(each[1].gain or 0.0)):
        task = known.get(task_id)
        shapes = [
            "x".join(map(str, tensor.shape))
            for tensor in (task.full.tensors if task else ())
            if tensor.role == "input" and tensor.shape
        ]  # fmt: skip
        first = f"{kernel.first_us:.4g}" if kernel.first_us else "?"
        share = kernel.bound_share
        bound = "?" if share is None else f"{kernel.bound_us:.3g} ({share:.0%})"
        lines.append(
            f"| {task.name if task else task_id[:10]} | {task.op_class if task else ''} "
            f"| {task.dtype if task else ''} {', '.join(shapes)} | {gpu} | {first} "
            f"| {kernel.microseconds:.4g} | {bound} | {tried[task_id]} "
            f"| {_made_by(kernel)} |"
        )
    if not lines:
        return ""
    others = sorted(
        f"{known[name].name if name in known else name[:10]} ({count})"
        for name, count in tried.items() if name not in {task_id for task_id, _ in best}
    )  # fmt: skip
    rest = f"No other kernel held to be faster than the first (tries): {', '.join(others)}."
    return "\n".join([
        "## Tasks, and the best kernel of each", "",
        "Microseconds; the bound is what no kernel can be faster than: all inputs and outputs once "
        "at the peak of DRAM, and the operations at the peak of the fastest arithmetic that is as "
        "accurate as the type (of float32 three products of halves on tensor cores for one), "
        "whichever takes longer; beside it the share of it that the best one reaches. "
        "`kernelblaster kb kernels TASK` shows the way there.", "",
        "| task | operation | inputs | GPU | first | best | bound | tries | what made it |",
        "|---|---|---|---|---|---|---|---|---|",
        *lines,
        *(["", rest] if others else []),
    ])  # fmt: skip


def _made_by(kernel: KnownKernel) -> str:
    if kernel.gain is not None and math.log(kernel.gain) < MATTERS:
        return "nothing gained on the first kernel"
    return ", ".join(kernel.techniques) or "as first written"


def _situations(
    snapshot: Snapshot, rows: Sequence[Evidence], knowledge: KnowledgeBase, kind: str
) -> Iterator[str]:
    by_state: dict[str, list[Evidence]] = {}
    for row in rows:
        by_state.setdefault(snapshot.place(row), []).append(row)
    names = _names(snapshot)
    seen = {task.task_id: task for task in knowledge.tasks_seen()}
    ranked = sorted(
        (state for state in snapshot.states() if state.id in by_state),
        key=lambda state: (-len(by_state[state.id]), state.id),
    )
    if ranked:
        yield (
            "## Situations, and what was tried in them\n\nThe situation that kernels were tried in "
            "most often comes first; in a table what gained most does."
        )
    for state in ranked:
        own = by_state[state.id]
        on = sorted(
            {seen[row.task_id].name if row.task_id in seen else row.task_id[:10] for row in own}
        )
        facts = [
            evidence_facts(row) if row.task_id not in seen
            else {**evidence_facts(row), "operators": frozenset(seen[row.task_id].operators)}
            for row in own
        ]  # fmt: skip
        yield "\n".join([
            f"### {state.name}", "",
            f"{state.description} On average of the kernels tried here {_figures(own, state)}. "
            f"Met in {', '.join(on)}.", "",
            "| technique | gain | tries | on | afterwards | says |",
            "|---|---|---|---|---|---|",
            *_lines(own, snapshot, names, seen), *_assumed(state, own, facts, snapshot, kind),
        ])  # fmt: skip


def _names(snapshot: Snapshot) -> dict[str, str]:
    """Return what states are called; those that a run found and nobody named, by what holds."""
    return {
        state.id: state.name if state.name != state.id else f"one found by a run ({state.primary})"
        for state in snapshot.states()
    }


def _figures(rows: Iterable[Evidence], state: PerformanceState) -> str:
    """Return the most striking figures of kernels that need no key to be read, that of the unit
    which the state is named after first."""
    mean = Signature(values=mean_of(row.signature_before for row in rows))
    own = [
        dimension.words.format(f"{value:.0%}")
        for dimension, value in zip(DIMENSIONS, mean.values, strict=True)
        if dimension.name == state.primary and value >= 0.0
    ]
    told = explain(mean, limit=len(mean.values))
    plain = [each for each in told if "(" not in each and not each.endswith("is the bottleneck")]
    return ", ".join(list(dict.fromkeys([*own, *plain]))[:FIGURES]) or "nothing strikes"


def _lines(
    rows: Sequence[Evidence], snapshot: Snapshot, names: Mapping[str, str],
    seen: Mapping[str, TaskSeen],
) -> list[str]:  # fmt: skip
    groups: dict[tuple[str, bool], list[Evidence]] = {}
    for row in rows:
        groups.setdefault((row.technique, row.earlier is not None), []).append(row)
    found = [
        _Tries(f"{technique}, again" if again else technique, tries)
        for (technique, again), tries in groups.items()
    ]
    return [
        _line(each, snapshot, names, seen)
        for each in sorted(found, key=lambda each: (-each.middle, each.technique))
    ]


def _line(
    tries: _Tries, snapshot: Snapshot, names: Mapping[str, str], seen: Mapping[str, TaskSeen]
) -> str:
    gains = tries.gains
    failed = Counter(
        row.outcome.value.replace("_", " ") for row in tries.rows if row.log_gain is None
    )
    count = f"{len(tries.rows)} on {tries.tasks} task{'s' if tries.tasks > 1 else ''}"
    if failed:
        count += "; " + ", ".join(f"{number} {what}" for what, number in failed.most_common())
    gain = after = ""
    if gains:
        gain = _gain(tries.middle)
        if len(gains) > 1:
            gain += f" ({_gain(gains[0])} to {_gain(gains[-1])})"
        states = Counter(
            snapshot.standing(row.state_after) for row in tries.rows if row.state_after
        )
        ((state, _),) = states.most_common(1) or [("", 0)]
        after = names.get(state, "one that no longer stands" if state else "")
    return (
        f"| {tries.technique} | {gain or 'none'} | {count} | {_where(tries, seen)} | {after} "
        f"| {_says(tries)} |"
    )


def _where(tries: _Tries, seen: Mapping[str, TaskSeen]) -> str:
    """Return what each try was made on, with its setting and its gain, the best first."""
    told = []
    worst = [row for row in tries.rows if row.log_gain is None]
    rest = (row for row in tries.rows if row.log_gain is not None)
    for row in [*sorted(rest, key=lambda row: -(row.log_gain or 0.0)), *worst]:
        task = seen.get(row.task_id)
        setting = " ".join(f"{name} {value}" for name, value in sorted(row.parameters.items()))
        came = row.outcome.value if row.log_gain is None else _gain(row.log_gain)
        name = task.name if task else row.task_id[:10]
        told.append(" ".join(filter(None, (name, setting.replace("_", " "), came))))
    more = len(told) - MOST_TOLD
    return "; ".join(told[:MOST_TOLD]) + (f"; {more} more" if more > 0 else "")


def _says(tries: _Tries) -> str:
    """Return what tries come to in a word or two; of one task it is a hint and no more."""
    gains = tries.gains
    if not gains:
        said = "breaks the kernel"
    elif gains[-1] - gains[0] > PAYS and gains[-1] >= PAYS and gains[0] < PAYS:
        said = "depends"
        by_class: dict[str, list[float]] = {}
        for row in tries.rows:
            if row.log_gain is not None:
                by_class.setdefault(row.op_class, []).append(row.log_gain)
        if len(by_class) > 1:
            told = sorted((-median(each), name) for name, each in by_class.items())
            said += ": " + ", ".join(f"{name} {_gain(-gain)}" for gain, name in told)
    elif gains[0] >= PAYS:
        said = "pays"
    elif tries.middle >= MATTERS:
        said = "pays a little"
    elif tries.middle > -MATTERS:
        said = "hardly matters"
    else:
        said = "costs" if gains[-1] <= -MATTERS else "mostly costs"
    return said if tries.tasks > 1 else f"{said} (one task)"


def _gain(log_gain: float) -> str:
    """Return a gain with as many digits as a column reads well with."""
    gain = math.exp(log_gain)
    return f"{gain:.2f}x" if gain < 10.0 else f"{gain:.3g}x"


def _guess(log_gain: float) -> str:
    """Return what is assumed with no more digits than it deserves."""
    gain = math.exp(log_gain)
    return f"{gain:.1f}x" if gain < 2.0 else f"{gain:.0f}x"


def _assumed(
    state: PerformanceState,
    rows: Sequence[Evidence],
    facts: Sequence[KernelFacts],
    snapshot: Snapshot,
    kind: str,
) -> list[str]:
    """Name what nobody tried here that could be, by the conditions that are known of it."""
    tried = {row.technique for row in rows}
    left = [
        card
        for technique, card in snapshot.optimizations(kind).get(state.id, {}).items()
        if technique not in tried
        and card.prior_log_gain >= LEAST_ASSUMED
        and not card.steps
        and any(unmet(card.conditions, each) is None for each in facts)
    ]
    left.sort(key=lambda card: (-card.prior_log_gain, card.technique))
    if not left:
        return []
    named = "; ".join(
        f"{card.technique} (perhaps {_guess(card.prior_log_gain)})" for card in left[:MOST_ASSUMED]
    )
    return ["", f"Not tried here; guesses that come with the program, not results: {named}."]


def _together(snapshot: Snapshot, kind: str) -> str:
    known = {row.id: row for row in snapshot.evidence()}
    lines = []
    for edit in snapshot.edits.of(kind):
        if not isinstance(edit, AddMacro):
            continue
        steps = [known[name] for name in edit.evidence if name in known]
        alone = [
            known[name] for proof in edit.proofs for name in proof.without if name in known
        ]
        told = ", then ".join(
            f"{row.technique} {_gain(row.log_gain or 0.0)}" for row in steps
        )
        without = "; ".join(
            dict.fromkeys(
                f"{row.technique} without it "
                + ("failed" if row.log_gain is None else _gain(row.log_gain))
                for row in alone
            )
        )
        where = f"{steps[0].op_class}, seen once" if steps else "seen once"
        lines.append(f"- {told}" + (f"; {without}" if without else "") + f" ({where}).")
    if not lines:
        return ""
    return "## What paid after something else only\n\n" + "\n".join(dict.fromkeys(lines))


def _rules(snapshot: Snapshot, kind: str) -> str:
    names = _names(snapshot)
    lines = [
        f"- {edit_text(edit, names)}"
        for edit in snapshot.edits.of(kind)
        if isinstance(edit, Deprecate) or (isinstance(edit, Revise) and edit.conditions)
    ]
    return "## Where not to try what\n\n" + "\n".join(lines) if lines else ""


def _in_words(knowledge: KnowledgeBase, kind: str) -> str:
    """Return what models and people wrote: rules say no more than the tables."""
    lines = [
        f"- {lesson.text} ({lesson.author}; tries: {lesson.supporting} for it, "
        f"{lesson.opposing} against{', contested' if lesson.contested else ''})"
        for lesson in knowledge.lessons()
        if comparable(lesson.device_kind, kind) and lesson.author != BUILTIN
    ]
    return "## In words\n\n" + "\n".join(lines) if lines else ""


def _glossary(snapshot: Snapshot, rows: Sequence[Evidence], kind: str) -> str:
    cards = {
        name: card
        for under in snapshot.optimizations(kind).values() for name, card in under.items()
    }  # fmt: skip
    lines = []
    for name in sorted({row.technique for row in rows}):
        card = snapshot.card(name, kind) or cards.get(name)
        told = card.description if card else "described nowhere"
        beware = f" Beware: {card.side_effects}" if card and card.side_effects else ""
        lines.append(f"- {name}: {told}{beware}")
    return "## Techniques\n\n" + "\n".join(lines) if lines else ""
