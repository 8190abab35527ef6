"""The report of one run as Markdown: the figures, the path, every step, the lessons, the cost."""

from __future__ import annotations

from ..bench.markdown_parts import bullets, table, text
from . import words
from .reading import RunAccount, place_of
from .summary import facts_of_run, sentence, tiles


def run_markdown(run: RunAccount) -> str:
    """Return the report of a run, newline-terminated."""
    way = run.ways.get(run.best[0], ()) if run.best else ()
    parts = [
        f"# {text(run.name)} on {text(run.plan.gpu)}: {words.plain(run.status)}",
        text(sentence(run)),
        table(("", "", ""), [(each.name, each.value, each.note) for each in tiles(run)]),
    ]
    if run.result and run.result.notes:
        parts += ["## Worth knowing", bullets(run.result.notes)]
    if way:
        path = [
            (str(number), step.technique, words.parameters(step.parameters),
             words.log_gain(step.log_gain), words.microseconds(step.microseconds_after))
            for number, step in enumerate(way, 1)
        ]  # fmt: skip
        parts += ["## Path of the winner",
                  table(("", "technique", "parameters", "gain", "time"), path)]  # fmt: skip
    if run.result and run.result.shapes:
        shapes = [
            (words.parameters(each.dimensions),
             words.plain(each.outcome) if each.ran else "not run",
             words.microseconds(each.microseconds), words.gain(each.speedup), each.reason)
            for each in run.result.shapes
        ]  # fmt: skip
        parts += ["## At shapes that the search never saw", table(SHAPE_HEADERS, shapes)]
    if run.steps:
        parts += ["## Steps", table(STEP_HEADERS, [_step(run, at) for at in range(len(run.steps))])]
    for iteration in run.iterations:
        if iteration.update and iteration.update.lessons:
            parts += [f"## Lessons of iteration {iteration.number + 1}",
                      bullets(f"{words.plain(each.kind)}: {each.text} ({each.author})"
                              for each in iteration.update.lessons)]  # fmt: skip
        if iteration.update and iteration.update.edits:
            parts += [f"## Edits of the policy by iteration {iteration.number + 1}",
                      bullets(f"{each.text} ({each.author})"
                              for each in iteration.update.edits)]  # fmt: skip
    if run.spending:
        spent = [
            (words.plain(each.role), each.model, words.count(each.calls),
             words.count(each.tokens_in), words.count(each.tokens_out), words.money(each.money))
            for each in run.spending
        ]  # fmt: skip
        columns = ("role", "model", "calls", "tokens in", "tokens out", "money")
        parts += ["## Model calls", table(columns, spent)]
    parts += ["## Facts", table(("", ""), facts_of_run(run))]
    return "\n\n".join(parts) + "\n"


SHAPE_HEADERS = ("sizes", "outcome", "time", "over PyTorch", "why not")
STEP_HEADERS = ("step", "state", "technique", "parameters", "expected", "outcome", "gain", "time",
                "why not")  # fmt: skip


def _step(run: RunAccount, at: int) -> tuple[str, ...]:
    step = run.steps[at]
    return (
        ".".join(str(number + 1) for number in place_of(step)),
        run.state_names.get(step.state_id, step.state_id),
        step.technique,
        words.parameters(step.parameters),
        words.log_gain(step.expected_log_gain),
        words.plain(step.outcome),
        words.log_gain(step.log_gain),
        words.microseconds(step.microseconds_after),
        "" if step.log_gain is not None else step.reason,
    )
