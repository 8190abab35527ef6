"""How many tokens a step's prompts have, beside a minimal agent's that is given everything.

    python benchmarks/models/prompt_tokens.py [--pages FOLDER] [--steps 4] [--rollouts 2]
        [--iterations 2] [--out FILE]

KernelBlaster's prompts are those of real runs on the simulated device: every role is a model that
says nothing, so that its prompt is stored and the built-in reasoner takes the step. Whatever form
a reply must have is in the prompt (json_mode), so that it is counted too.

The minimal agent has no knowledge base and no roles. At each step, as many as the run's, it is
given the same file as the step's and the whole text of the profiler, after the same contract and
task. It keeps its conversation, for it has no other memory: so what it is sent grows with the
steps, and the means are given over the first few and over all. Beside it stands one that forgets
everything between two steps.

The profiler's text: with `--pages`, what Nsight Compute says of a real launch like the task's, at
`--set full`: the details page, as metric lines and rules without any layout; and, beside it, the
raw page, a line a metric, which is all that Nsight Compute has to say. FOLDER holds
ncu_full_details.csv and ncu_full_raw.csv as `ncu --import FILE --csv --page details|raw` writes
them, LAUNCHES says which launch is like which task. Without `--pages`, the stand-in is the
simulated profile with all its metrics, as JSON.

Tokens are those of o200k_base where tiktoken can load it (network or TIKTOKEN_CACHE_DIR), else a
quarter of the characters. A reply is taken to be as long as the file it gives.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from answering import Answering
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.prompts.render import render
from kernelblaster.nodes.common.prompts.subject import bounds_context, task_context
from kernelblaster.tools.models.asking import estimate_tokens
from kernelblaster.tools.models.records import ROLES, ModelPlan

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from asked import Asked  # noqa: E402

DEVICE, GPU = "simulated", "H100"
EXAMPLES = ROOT / "examples"
LAUNCHES = {"softmax": "softmax_thread", "matmul": "mm_naive", "layer_norm": "layernorm_naive"}
"""Which real launch is like the example's first kernel."""

OF_A_STEP = (
    "state_extractor", "state_selector", "optimization_proposer", "optimization_selector",
    "kernel_writer",
)  # fmt: skip
OF_AN_ITERATION = ("policy_evaluation", "gap_analysis", "parameter_update")

Counter = Callable[[str], int]


class Silent(Answering):
    """A model that is asked and says nothing."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Bind tools that are never called."""
        return self.bind(tools=list(tools), **options)

    def reply_to(self, messages: list[BaseMessage], role: str) -> str:
        """Return nothing."""
        return ""


def silent() -> BaseChatModel:
    """Return the model that the runs here ask."""
    return Silent()


class Step(NamedTuple):
    """One step of a run: tokens of its prompts by role, and what the minimal agent would see."""

    tokens: dict[str, int]
    source: str
    profile: str


class Minimal(NamedTuple):
    """Tokens of the minimal agent's prompts, a step each."""

    forgetting: list[int]
    conversing: list[int]


def counter() -> tuple[str, Counter]:
    """Return what counts tokens, and its name."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except Exception as error:  # No network, no cache: the estimate is good enough to compare.
        return f"characters / 4 (o200k_base cannot be loaded: {type(error).__name__})", (
            estimate_tokens
        )
    return "o200k_base", lambda text: len(encoding.encode(text, disallowed_special=()))


def run(name: str, options: argparse.Namespace, folder: Path) -> Path:
    """Run a task with every role asked and none answered; return the run directory."""
    models = ModelPlan(reasks=0, attempts=1, method="json_mode")
    request = Asked.of(
        task=str(EXAMPLES / f"{name}.py"), device=DEVICE, gpu=GPU,
        iterations=options.iterations, rollouts=options.rollouts, steps=options.steps,
        model="import:prompt_tokens:silent", models=models, knowledge=str(folder / "knowledge"),
    )  # fmt: skip
    session = request.session(folder / name)
    try:
        asyncio.run(session.run())
    finally:
        session.close()
    return folder / name


def prompts_of(directory: Path) -> Iterator[tuple[str, tuple[Any, ...], str]]:
    """Yield (role, place, prompt) of every call of a run, from its ledger."""
    artifacts = ArtifactStore(directory / "artifacts")
    with sqlite3.connect(directory / "run.sqlite") as database:
        rows = database.execute(
            "SELECT role, place, prompt_sha256 FROM calls ORDER BY started"
        ).fetchall()
    for role, place, sha256 in rows:
        messages = json.loads(artifacts.get_text(sha256))
        yield role, tuple(json.loads(place)), "\n".join(each["content"] for each in messages)


def steps_of(directory: Path, count: Counter) -> tuple[list[Step], dict[str, int]]:
    """Return a run's steps, and the tokens of its other prompts by role."""
    by_place: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    others: dict[str, int] = defaultdict(int)
    for role, place, prompt in prompts_of(directory):
        if role in OF_A_STEP:
            by_place[place[:3]][role] += count(prompt)
        else:
            others[role] += count(prompt)
    found = []
    artifacts = ArtifactStore(directory / "artifacts")
    with RunStore(directory / "run.sqlite") as store:
        evaluations = [store.get(key) for key in _keys(directory)]
        profiles = {each.source_sha256: each.profile for each in evaluations if each}
        for step in store.replay.steps():
            profile = profiles[step.parent_sha256]
            assert profile is not None
            found.append(
                Step(
                    tokens=dict(by_place[step.iteration, step.rollout, step.step]),
                    source=artifacts.get_text(step.parent_sha256),
                    profile=profile.model_dump_json(exclude_none=True),
                )
            )
    return found, dict(others)


def _keys(directory: Path) -> list[str]:
    with sqlite3.connect(directory / "run.sqlite") as database:
        return [key for (key,) in database.execute("SELECT key FROM evaluations")]


def minimal(steps: list[Step], preamble: str, pages: str | None, count: Counter) -> Minimal:
    """Return what a minimal agent would be sent at each of the same steps."""
    forgetting, conversing = [], []
    history = count(preamble)
    for step in steps:
        shown = count(f"{step.source}\n{pages if pages is not None else step.profile}")
        forgetting.append(count(preamble) + shown)
        history += shown
        conversing.append(history)
        history += count(step.source)  # Its reply: a file about as long.
    return Minimal(forgetting, conversing)


def preamble_of(directory: Path) -> str:
    """Return contract, task and device as both agents are told them."""
    device = open_device(DEVICE, GPU)
    task = _task(directory)
    context = task_context(task, device.identity) | bounds_context(task, device.identity)
    device.close()
    left_out = {"program": "", "rest": "", "wanted": (), "solution": "", "examples": ()}
    first = render("initial_cuda", 100_000, **context | left_out)
    return "\n".join(message.content for message in first)


def _task(directory: Path) -> Task:
    for path in (directory / "artifacts").rglob("*"):
        if path.is_file():
            try:
                return Task.model_validate_json(path.read_bytes())
            except ValueError:
                continue
    raise SystemExit(f"{directory} holds no task")


def details_page(folder: Path, kernel: str) -> str:
    """Return what the details page says of one launch: a line a metric, then the rules."""
    text = (folder / "ncu_full_details.csv").read_text()
    lines: list[str] = []
    section = ""
    for row in csv.DictReader(text.splitlines()):
        if not row["Kernel Name"].startswith(kernel):
            continue
        if row["Section Name"] != section:
            section = row["Section Name"]
            lines.append(f"Section: {section}")
        if row["Rule Name"]:
            speedup = f" Est. Speedup: {row['Estimated Speedup']}%" if row[
                "Estimated Speedup"] else ""  # fmt: skip
            lines.append(f"{row['Rule Type']}{speedup} {row['Rule Description']}")
        else:
            lines.append(f"{row['Metric Name']} {row['Metric Unit']} {row['Metric Value']}")
    if not lines:
        raise SystemExit(f"{folder}/ncu_full_details.csv holds no launch of {kernel}")
    return "\n".join(lines)


def raw_page(folder: Path, kernel: str) -> str:
    """Return all metrics of one launch, a line each."""
    rows = list(csv.reader((folder / "ncu_full_raw.csv").read_text().splitlines()))
    place = rows[0].index("Kernel Name")
    row = next(row for row in rows[2:] if row[place].startswith(kernel))
    return "\n".join(f"{n} {u} {v}" for n, u, v in zip(rows[0], rows[1], row, strict=True))


class Compared(NamedTuple):
    """One task: its table, and KernelBlaster's tokens over the conversing agent's, all steps."""

    text: str
    all_roles: float
    lowering: float


def report(name: str, directory: Path, pages: Path | None, count: Counter) -> Compared:
    """Return how a task's prompts compare."""
    steps, others = steps_of(directory, count)
    kernel = LAUNCHES.get(name)
    text = details_page(pages, kernel) if pages and kernel else None
    plain = minimal(steps, preamble_of(directory), text, count)
    roles = [role for role in ROLES if any(role in step.tokens for step in steps)]
    lines = [f"{name}: {len(steps)} steps; tokens of the prompts of a step"]
    for role in roles:
        mean = statistics.mean(step.tokens.get(role, 0) for step in steps)
        lines.append(f"  {role:<24}{mean:>8.0f}")
    iteration = sum(others.get(role, 0) for role in OF_AN_ITERATION) / len(steps)
    lines.append(f"  {'outer loop, a step':<24}{iteration:>8.0f}")
    once = {role: tokens for role, tokens in others.items() if role not in OF_AN_ITERATION}
    lines.append(f"  {'once a run':<24}{sum(once.values()):>8}  {', '.join(once)}")
    shown = "details page" if text is not None else "simulated profile as JSON"
    size = count(text if text is not None else steps[0].profile)
    lines.append(f"  the profiler's text      {size:>7}  {kernel if text else name}, {shown}")
    others_sent = [("conversing", plain.conversing), ("forgetting", plain.forgetting)]
    if text is not None and pages and kernel:
        raw = raw_page(pages, kernel)
        lines.append(f"  its raw page            {count(raw):>8}")
        everything = minimal(steps, preamble_of(directory), raw, count)
        others_sent.append(("forgetting, given the raw page", everything.forgetting))
    ratios = (0.0, 0.0)
    for number in sorted({min(len(steps), n) for n in (4, 8, len(steps))}):
        whole = statistics.mean(sum(step.tokens.values()) for step in steps[:number]) + iteration
        lowering = statistics.mean(step.tokens.get("kernel_writer", 0) for step in steps[:number])
        for label, sent in others_sent:
            other = statistics.mean(sent[:number])
            lines.append(
                f"  {number:>3} steps, against one {label}: all roles {whole:.0f} / {other:.0f} = "
                f"{whole / other:.2f}; lowering alone {lowering:.0f} / {other:.0f} = "
                f"{lowering / other:.2f}"
            )
            if label == "conversing":
                ratios = whole / other, lowering / other
    return Compared("\n".join(lines), *ratios)


def main() -> None:
    """Run the tasks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--tasks", default=",".join(LAUNCHES))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    name, count = counter()
    parts = [f"tokens: {name}"]
    found = []
    with tempfile.TemporaryDirectory(prefix="prompt-tokens-") as folder:
        for task in options.tasks.split(","):
            directory = run(task, options, Path(folder))
            found.append(report(task, directory, options.pages, count))
            parts.append(found[-1].text)
            print(parts[-1], flush=True)
    for label, ratios in (
        ("all roles", [each.all_roles for each in found]),
        ("lowering alone", [each.lowering for each in found]),
    ):
        mean = statistics.geometric_mean(ratios)
        parts.append(f"{label} over one conversing, all steps, {len(found)} tasks: {mean:.2f}")
        print(parts[-1])
    if options.out:
        options.out.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
