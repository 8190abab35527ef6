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
from ...memory.knowledge.kernels import KnownKernel
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.policy.facts import comparable
from ...memory.knowledge.snapshots.snapshot import Snapshot
from ...memory.knowledge.states.conditions import KernelFacts, evidence_facts, unmet
from ...memory.knowledge.states.signature import explain, mean_of
from ...memory.records.edits import AddMacro, Deprecate, Revise
from ...memory.records.evidence import NO_GAIN, Evidence
from ...memory.records.identity import Author
from ...memory.records.states import PerformanceState, Signature
from .edits import edit_text

PAYS = 0.05
"""Log gain from which a technique is said to pay (about 5 %)."""
MOST_ASSUMED = 3
"""Techniques of a state that nobody tried there and that are named, the most promising."""
FIGURES = 4
"""Of a situation that are told, the most striking."""
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
        f"slower.{trust} A gain is of the first time that a technique is applied to a kernel; "
        '"again" is with another setting on a kernel that has it.'
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
            f"| {', '.join(kernel.techniques) or 'as first written'} |"
        )
    if not lines:
        return ""
    return "\n".join([
        "## Tasks, and the best kernel of each", "",
        "Microseconds; the bound is what no kernel can be faster than (bytes and operations at the "
        "GPU's peaks), with the share of it that the best one reaches. "
        "`kernelblaster kb kernels TASK` shows the way there.", "",
        "| task | operation | inputs | GPU | first | best | bound | tries | what made it |",
        "|---|---|---|---|---|---|---|---|---|",
        *lines,
    ])  # fmt: skip


def _situations(
    snapshot: Snapshot, rows: Sequence[Evidence], knowledge: KnowledgeBase, kind: str
) -> Iterator[str]:
    by_state: dict[str, list[Evidence]] = {}
    for row in rows:
        by_state.setdefault(snapshot.place(row), []).append(row)
    names = {state.id: state.name for state in snapshot.states()}
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
            f"{state.description} On average of the kernels tried here {_figures(own)}. "
            f"Met in {', '.join(on)}.", "",
            "| technique | gain | tries | best setting | afterwards | says |",
            "|---|---|---|---|---|---|",
            *_lines(own, snapshot, names), *_assumed(state, own, facts, snapshot, kind),
        ])  # fmt: skip


def _figures(rows: Iterable[Evidence]) -> str:
    """Return the most striking figures of kernels that need no key to be read."""
    mean = Signature(values=mean_of(row.signature_before for row in rows))
    told = explain(mean, limit=len(mean.values))
    plain = [each for each in told if "(" not in each and not each.endswith("is the bottleneck")]
    return ", ".join(plain[:FIGURES]) or "nothing strikes"


def _lines(rows: Sequence[Evidence], snapshot: Snapshot, names: Mapping[str, str]) -> list[str]:
    groups: dict[tuple[str, bool], list[Evidence]] = {}
    for row in rows:
        groups.setdefault((row.technique, row.earlier is not None), []).append(row)
    found = [
        _Tries(f"{technique}, again" if again else technique, tries)
        for (technique, again), tries in groups.items()
    ]
    return [
        _line(each, snapshot, names)
        for each in sorted(found, key=lambda each: (-each.middle, each.technique))
    ]


def _line(tries: _Tries, snapshot: Snapshot, names: Mapping[str, str]) -> str:
    gains = tries.gains
    failed = Counter(
        row.outcome.value.replace("_", " ") for row in tries.rows if row.log_gain is None
    )
    count = f"{len(tries.rows)} on {tries.tasks} task{'s' if tries.tasks > 1 else ''}"
    if failed:
        count += "; " + ", ".join(f"{number} {what}" for what, number in failed.most_common())
    gain = best = after = ""
    if gains:
        gain = _gain(tries.middle)
        if len(gains) > 1:
            gain += f" ({_gain(gains[0])} to {_gain(gains[-1])})"
        top = next(row for row in tries.rows if row.log_gain == gains[-1])
        best = ", ".join(f"{name} {value}" for name, value in sorted(top.parameters.items()))
        states = Counter(
            snapshot.standing(row.state_after) for row in tries.rows if row.state_after
        )
        ((state, _),) = states.most_common(1) or [("", 0)]
        after = names.get(state, state)
    return f"| {tries.technique} | {gain or 'none'} | {count} | {best} | {after} | {_says(tries)} |"


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
    elif tries.middle > NO_GAIN:
        said = "pays a little"
    elif tries.middle >= -NO_GAIN:
        said = "hardly matters"
    else:
        said = "costs" if gains[-1] <= -NO_GAIN else "mostly costs"
    return said if tries.tasks > 1 else f"{said} (one task)"


def _gain(log_gain: float) -> str:
    """Return a gain with as many digits as a column reads well with."""
    gain = math.exp(log_gain)
    return f"{gain:.2f}x" if gain < 10.0 else f"{gain:.3g}x"


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
        f"{card.technique} ({_gain(card.prior_log_gain)})" for card in left[:MOST_ASSUMED]
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
    names = {state.id: state.name for state in snapshot.states()}
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
        lines.append(f"- {name}: {card.description if card else 'described nowhere'}")
    return "## Techniques\n\n" + "\n".join(lines) if lines else ""
