"""A task seen before starts from its best; what was evaluated is not evaluated again."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graph_support
import pytest
import text_runs
from scripted_chat_model import ScriptedChatModel, use
from typer.testing import CliRunner

from kernelblaster.cli.app import app
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.knowledge.kernels import KnownKernel, TaskSeen
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.first_kernel.writer import NotWritten
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.techniques.catalogue import knowledge_seed

MODEL = "import:scripted_chat_model:current"
FAST = "us: 3.0\n// launch()\nsize: X_SIZE_0\n"
Run = Callable[..., RunResult]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs on the text device that share a knowledge base."""
    graph_support.install(monkeypatch.setattr)

    def of(name: str, **changes: Any) -> RunResult:
        short = {"iterations": 1, "rollouts": 1, "steps": 2, "gpu": "H100"}
        return text_runs.run(tmp_path, name, **(short | changes))

    return of


def known(folder: Path, source: str = FAST, **changes: Any) -> None:
    """Have the base know a kernel of the text task, or of one like it."""
    task = changes.pop("task", graph_support.text_task())
    kernel = KnownKernel(**{
        "task_id": task.id, "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "microseconds": 3.0, "first_us": 60.0, "device_kind": "simulated", "gpu": "H100",
        "arch": "sm_90", "harness": "1.1", "toolchain": "text", "author": "somebody",
        "techniques": ("fast_math", "unroll_loop"), "run": "earlier", **changes,
    })  # fmt: skip
    with KnowledgeBase.open(folder / "kb", knowledge_seed()) as knowledge:
        knowledge.keep_kernel(TaskSeen.of(task), kernel, source)


def report(folder: Path, name: str) -> str:
    return (folder / name / "report.txt").read_text()


def stages(log: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in log.read_text().splitlines() if line)


def test_the_same_task_again_starts_from_its_best_and_says_so(run: Run, tmp_path: Path) -> None:
    first = run("first", rollouts=2)
    assert first.start_us is None and first.outcome == "improved"
    again = run("again", seed=5)
    assert again.initial_us == first.initial_us, "gains are told against the plain first kernel"
    assert again.start_us == pytest.approx(first.best_us) and again.best_us <= first.best_us
    assert again.gain >= first.gain and again.gain == pytest.approx(100.0 / again.best_us)
    assert again.techniques[0] == "known_kernel" and again.path[0].gain > 1
    assert again.path[0].names == first.techniques
    assert f"began   {again.start_us:.2f} us, with the kernel found by run first-" in report(
        tmp_path, "again"
    )
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        best, last = knowledge.kernels_won()
        tasks, tried = knowledge.tasks_seen(), knowledge.tried_on(best.task_id)
    assert (best.microseconds, best.first_us) == (first.best_us, 100.0)
    assert last.techniques[: len(best.techniques)] == best.techniques == first.techniques
    assert [task.name for task in tasks] == ["text"]
    assert {each.technique for each in tried} >= set(first.techniques)
    assert "known_kernel" not in {each.technique for each in tried}, "nothing was tried there"


@pytest.mark.parametrize(
    "settings",
    [
        {"memory": "off"}, {"memory": "seed"}, {"choice": "random"}, {"policy": "best_of_n"},
        {"policy": "minimal"}, {"policy": "random"}, {"policy": "no_memory"},
    ],
    ids=str,
)  # fmt: skip
def test_who_remembers_nothing_does_not_start_there(
    run: Run, tmp_path: Path, settings: dict[str, Any]
) -> None:
    known(tmp_path)
    by_rounds = settings.get("policy") in ("best_of_n", "minimal")
    result = run("run", **settings, **({"rounds": 1} if by_rounds else {"steps": 1}))
    assert result.start_us is None and result.best_us > 3.0
    assert "known_kernel" not in result.techniques


def test_a_frozen_memory_is_read_and_not_written(run: Run, tmp_path: Path) -> None:
    known(tmp_path)
    result = run("run", memory="frozen")
    assert result.start_us == 3.0 and result.best_us < 3.0
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        assert [each.run for each in knowledge.kernels_won()] == ["earlier"]


def test_a_known_kernel_that_fails_is_passed_over_with_the_reason(
    run: Run, tmp_path: Path
) -> None:
    known(tmp_path, FAST + "outcome: race\n", run="racing")
    known(tmp_path, FAST + "outcome: compile_error\n", run="rotten", microseconds=4.0)
    result = run("run")
    assert result.start_us is None and result.initial_us == 100.0
    assert result.outcome == "improved" and "known_kernel" not in result.techniques
    said = report(tmp_path, "run")
    assert "the kernel of run racing does not hold here: race" in said
    assert "the kernel of run rotten does not hold here: compile error" in said


def test_the_next_one_is_tried_where_the_best_fails(run: Run, tmp_path: Path) -> None:
    known(tmp_path, FAST + "outcome: wrong_answer\n", run="wrong")
    known(tmp_path, "us: 6.0\n", run="right", microseconds=6.0)
    result = run("run")
    assert result.start_us == 6.0 and "run right" in result.began_with


def test_a_task_of_other_sizes_starts_from_it_restated(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def like(task: Task, name: str, size: int) -> Task:
        tensors = tuple(
            each.model_copy(update={"shape": (size,), "name": each.name.replace("x", name)})
            for each in task.full.tensors
        )
        full = task.full.model_copy(update={"dimensions": {"N": size}, "tensors": tensors})
        program = {"nodes": [{"name": "r", "op": "aten.relu.default", "args": [{"ref": name}]}],
                   "outputs": ["r"]}  # fmt: skip
        changed = {"full": full.model_dump(), "program": program}
        return Task.model_validate(task.model_dump() | changed)

    known(tmp_path, task=like(graph_support.text_task(), "x", 512))

    async def read(path: Path, *_: Any) -> Task:
        return like(graph_support.text_task(), "values", 1024)

    monkeypatch.setattr("kernelblaster.nodes.run.beginning.load_task.read_task", read)
    result = run("run", steps=1)
    assert result.start_us == 3.0 and "at other sizes" in result.began_with
    assert "size: VALUES_SIZE_0" in result.source


def test_where_no_first_kernel_can_be_written_the_known_one_is_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path)
    monkeypatch.setattr(
        "kernelblaster.nodes.initial_cuda.builtin.write_builtin",
        lambda task: NotWritten(reason="an operator nobody knows"),
    )
    result = run("run")
    assert result.initial_us == 3.0 and result.initial_author == "somebody"
    assert result.gain == pytest.approx(3.0 / result.best_us), "nothing is claimed of another run"
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as knowledge:
        last = knowledge.kernels_won()[-1]
    assert last.first_us is None and last.techniques[:2] == ("fast_math", "unroll_loop")


def test_a_persons_kernel_is_begun_with_whatever_is_known(run: Run, tmp_path: Path) -> None:
    known(tmp_path)
    (tmp_path / "mine.cu").write_text("us: 50.0\n// launch()\n")
    result = run("run", start=str(tmp_path / "mine.cu"))
    assert result.initial_us == 50.0 and result.start_us is None


def test_a_model_is_not_asked_for_what_is_known_and_is_shown_what_is_like(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"model": f"initial_cuda={MODEL}", "steps": 1}
    known(tmp_path)
    silent = ScriptedChatModel([])
    models = use(monkeypatch, silent, "initial_cuda", first_wait_seconds=0.01)
    assert run("known", models=models, **settings).start_us == 3.0 and not silent.calls
    known(tmp_path / "like", FAST + "outcome: race\n")
    writer = ScriptedChatModel([fenced("us: 70.0\n// launch()\n")])
    models = use(monkeypatch, writer, "initial_cuda", first_wait_seconds=0.01)
    knowledge = str(tmp_path / "like" / "kb")
    result = run("shown", models=models, knowledge=knowledge, **settings)
    assert result.initial_us == 70.0
    (call,) = writer.calls
    assert "A kernel that won before" in call.prompt and "size: X_SIZE_0" in call.prompt
    told = "3.00 us, 20x its plain first kernel; found by fast_math, then unroll_loop"
    assert told in call.prompt


def test_what_a_run_evaluated_no_other_does_but_for_the_winner(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELBLASTER_FRESH")
    log = tmp_path / "log"
    found = []
    for name in ("first", "again", "fresh"):
        log.write_text("")
        monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
        knowledge = str(tmp_path / name / "kb")  # The memory of kernels is another matter.
        result = run(f"run-{name}", knowledge=knowledge, fresh=name == "fresh")
        found.append((result, stages(log)))
    (first, asked), (again, asked_again), (fresh, asked_fresh) = found
    assert text_runs.comparable(fresh) == text_runs.comparable(first)
    assert again.best_us == first.best_us and again.outcomes == first.outcomes
    assert asked == asked_fresh and asked["compile"] == first.evaluations
    # The winner is verified and timed once more. What is simulated comes to the same each time.
    assert asked_again == {"verify": 1, "profile": 1}
    assert (first.taken_over, again.taken_over) == (0, first.evaluations)
    assert f"{again.taken_over} taken over from other runs" in report(tmp_path, "run-again")


def test_another_judge_takes_nothing_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELBLASTER_FRESH")
    first = run("first", knowledge=str(tmp_path / "a"))
    monkeypatch.setattr("kernelblaster.harness.records.versions.JUDGE_VERSION", "another")
    again = run("again", knowledge=str(tmp_path / "b"))
    assert again.taken_over == 0 and again.evaluations == first.evaluations


def test_a_run_stopped_while_known_kernels_are_tried_goes_on_to_the_same_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path)
    whole = run("whole", memory="frozen")

    class Stops(graph_support.TextDevice):
        async def profile(self, task: Task, source: str, sample: int = 0) -> Any:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(
            "kernelblaster.tools.workspace.open_device", lambda kind, gpu: Stops(gpu)
        )
        with pytest.raises(KeyboardInterrupt):
            run("stopped", memory="frozen")
    resumed = text_runs.resume(tmp_path / "stopped")
    assert text_runs.comparable(resumed) == text_runs.comparable(whole)


def test_the_kernels_of_a_task_are_shown_as_a_tree(run: Run, tmp_path: Path) -> None:
    result = run("run")
    command = CliRunner()

    def said(*arguments: str) -> str:
        found = command.invoke(app, ["kb", "kernels", *arguments, "--kb", str(tmp_path / "kb")])
        assert found.exit_code == 0, found.output
        return found.output

    assert "text" in said() and "elementwise" in said()
    tree = said("text")
    assert "[won run-" in tree and f"{result.best_us:.2f} us on H100" in tree
    assert all(f"{name}" in tree for name in result.techniques)
    told = json.loads(said("text", "--json"))
    assert [each["run"][:4] for each in told["won"]] == ["run-"] and told["tried"]
    assert json.loads(said("--json"))["tasks"][0]["won"] == 1
    assert "0 actions tried, 0 wins (measured)" in said("text", "--measured")
    refused = command.invoke(app, ["kb", "kernels", "nothing", "--kb", str(tmp_path / "kb")])
    assert refused.exit_code != 0
