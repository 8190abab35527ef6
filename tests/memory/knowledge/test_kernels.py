"""Kernels seen: which bear on a task, what is kept where there is no room, nothing by halves."""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from kernelblaster.cli.knowledge_exchange import kb_import
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.memory.knowledge import knowledge_base
from kernelblaster.memory.knowledge.ablation import open_under
from kernelblaster.memory.knowledge.exchange.document import (
    export,
    sources_missing,
    take_over,
)
from kernelblaster.memory.knowledge.kernels import KnownKernel, TaskSeen, renamed, worth_keeping
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.ablation import Ablation, Memory
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()


def variant(size: int, x: str = "x", dimension: str = "N") -> TaskVariant:
    tensors = (
        TensorSpec(name="out0", shape=(size, 64), dtype="float32", role="output"),
        TensorSpec(name=x, shape=(size, 64), dtype="float32", role="input"),
    )
    return TaskVariant(name="full", dimensions={dimension: size}, tensors=tensors)


def seen(name: str, size: int = 1024, graph: str = "softmax graph", **changes: Any) -> TaskSeen:
    values: dict[str, Any] = {
        "task_id": f"id of {name}", "name": name, "op_class": "softmax", "dtype": "float32",
        "operator_graph": graph, "operators": ("softmax",), "full": variant(size),
    }  # fmt: skip
    return TaskSeen(**{**values, **changes})


def won(task: TaskSeen, us: float, source: str = "", **changes: Any) -> tuple[KnownKernel, str]:
    text = source or f"// {task.name} {us}\n"
    values: dict[str, Any] = {
        "task_id": task.task_id, "source_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "microseconds": us, "first_us": 100.0, "bound_us": 2.0, "device_kind": "simulated",
        "gpu": "H100", "arch": "sm_90", "harness": "1.1", "toolchain": "nvcc", "author": "builtin",
        "techniques": ("fast_math",), "run": f"run {us}",
    }  # fmt: skip
    return KnownKernel(**{**values, **changes}), text


Opened = Callable[[str], KnowledgeBase]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens bases by name; closed at the end."""
    bases: list[KnowledgeBase] = []

    def base(name: str) -> KnowledgeBase:
        bases.append(KnowledgeBase.open(tmp_path / name, SEED))
        return bases[-1]

    yield base
    for each in bases:
        each.close()


def test_the_task_itself_comes_first_then_near_sizes_then_like_operators(opened: Opened) -> None:
    knowledge, here = opened("kb"), seen("here")
    told = {
        "far": (seen("far", 65536), 1.0, {}),
        "near": (seen("near", 2048), 9.0, {}),
        "fused": (seen("fused", graph="other", operators=("relu", "softmax")), 1.0, {}),
        "strange": (seen("strange", graph="third", operators=("conv2d",)), 1.0, {}),
        "half": (seen("half", dtype="float16"), 1.0, {}),
        "slow": (here, 8.0, {}),
        "elsewhere": (here, 1.0, {"gpu": "A100"}),
        "measured": (here, 2.0, {"device_kind": "cuda"}),
        "fast": (here, 5.0, {}),
        "twin": (seen("another text"), 7.0, {}),
    }
    for name, (task, us, changes) in told.items():
        kernel, text = won(task, us, f"// {name}\n", **changes)
        assert knowledge.keep_kernel(task, kernel, text)
    found = knowledge.kernels_bearing_on(here, "simulated", "H100")
    names = [str(knowledge.source(each.kernel.source_sha256))[3:].strip() for each in found]
    assert set(names[:2]) == {"fast", "twin"}, "the best of a task; of two texts, each its own"
    assert names[2:] == ["slow", "measured", "elsewhere", "near", "far", "fused"]
    near = [each.nearness for each in found]
    assert near == ["same"] * 5 + ["resized"] * 2 + ["related"]
    assert knowledge.kernels_bearing_on(here, "simulated", "H100", at=0) == []


def test_a_kernel_measured_often_counts_with_the_middle_of_its_times(opened: Opened) -> None:
    knowledge, here = opened("kb"), seen("here")
    for us in (9.0, 8.0, 1.0):
        kernel, text = won(here, us, "// lucky once\n")
        knowledge.keep_kernel(here, kernel, text)
    kernel, text = won(here, 7.0, "// steady\n")
    knowledge.keep_kernel(here, kernel, text)
    first, second = knowledge.kernels_bearing_on(here, "simulated", "H100")
    assert first.kernel.source_sha256 == kernel.source_sha256 != second.kernel.source_sha256


def test_where_there_is_no_room_for_all_the_worst_go_first(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_base, "MOST_SOURCES", 2)
    knowledge = opened("kb")
    one, other, poor = seen("one"), seen("other", 512), seen("poor", 256)
    kept = [won(one, 10.0), won(other, 20.0), won(one, 5.0), won(poor, 90.0)]
    for task, (kernel, text) in zip((one, other, one, poor), kept, strict=True):
        knowledge.keep_kernel(task, kernel, text)
    there = [knowledge.source(kernel.source_sha256) is not None for kernel, _ in kept]
    assert there == [False, True, True, False], "a second of a task, and what gained least"
    assert len(knowledge.kernels_won()) == 4, "what is known of them stays"
    large, text = won(one, 1.0, "//" + "x" * knowledge_base.LARGEST_SOURCE)
    assert knowledge.keep_kernel(one, large, text) and knowledge.source(large.source_sha256) is None


def test_merging_is_a_union_whatever_the_order(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_base, "MOST_SOURCES", 4)
    tasks = [seen(f"task {number}", 64 << number) for number in range(3)]
    parts = []
    for name, times in (("a", (9.0, 4.0)), ("b", (7.0, 3.0)), ("c", (8.0, 4.0))):
        parts.append(opened(name))
        for task, us in itertools.product(tasks, times):
            kernel, text = won(task, us, run=f"{name} {us}")
            parts[-1].keep_kernel(task, kernel, text)

    def known(knowledge: KnowledgeBase) -> tuple[set[str], set[str]]:
        kernels = knowledge.kernels_won()
        sources = {each.source_sha256 for each in kernels}
        return {each.id for each in kernels}, {each for each in sources if knowledge.source(each)}

    found = []
    for number, order in enumerate(itertools.permutations(parts)):
        joined = opened(f"joined {number}")
        for part in (*order, order[0]):
            joined.merge(part)
        found.append(known(joined))
    whole = [kernel for part in parts for kernel in part.kernels_won()]
    assert all(each == found[0] for each in found)
    assert found[0] == ({each.id for each in whole}, worth_keeping(whole, 4))


def test_a_kernel_is_kept_whole_or_not_at_all(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge, here = opened("kb"), seen("here")
    kernel, text = won(here, 5.0)
    execute, calls = type(knowledge._journal.database).execute, itertools.count()

    def fails_at_the_last(database: Any, sql: str, parameters: Any = ()) -> int:
        if "INSERT" in sql and next(calls) == 2:
            raise sqlite3.OperationalError("database or disk is full")
        return int(execute(database, sql, parameters))

    monkeypatch.setattr(type(knowledge._journal.database), "execute", fails_at_the_last)
    with pytest.raises(UserError, match="disk is full"):
        knowledge.keep_kernel(here, kernel, text)
    assert knowledge.source(kernel.source_sha256) is None
    assert knowledge.kernels_won() == [] and knowledge.tasks_seen() == []
    assert knowledge.keep_kernel(here, kernel, text) and knowledge.source(kernel.source_sha256)
    assert not knowledge.keep_kernel(here, kernel, text), "told again, it is known"


def test_writers_at_the_same_time_lose_nothing(opened: Opened) -> None:
    bases, here = [opened("kb"), opened("kb")], seen("here")

    def write(knowledge: KnowledgeBase, first: int) -> None:
        for number in range(10):
            kernel, text = won(here, first + number + 1.0)
            knowledge.keep_kernel(here, kernel, text)

    writers = [
        threading.Thread(target=write, args=(base, 50 * place)) for place, base in enumerate(bases)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for base in bases:
        kernels = base.kernels_won()
        assert len(kernels) == 20 and all(base.source(each.source_sha256) for each in kernels)


def test_a_source_that_is_not_what_was_stored_is_none(opened: Opened, tmp_path: Path) -> None:
    knowledge, here = opened("kb"), seen("here")
    kernel, text = won(here, 5.0)
    knowledge.keep_kernel(here, kernel, text)
    with sqlite3.connect(tmp_path / "kb" / "evidence.sqlite") as database:
        database.execute("UPDATE sources SET text = text || ' '")
    assert knowledge.source(kernel.source_sha256) is None


def test_an_exported_kernel_begins_runs_elsewhere(opened: Opened, tmp_path: Path) -> None:
    here = seen("here")
    kernel, text = won(here, 5.0)
    knowledge, elsewhere = opened("kb"), opened("elsewhere")
    knowledge.keep_kernel(here, kernel, text)
    written = export(knowledge, measured=False, whole=True)
    assert take_over(elsewhere, written, tmp_path / "kb.json") == 2
    (found,) = elsewhere.kernels_bearing_on(here, "simulated", "H100")
    assert elsewhere.source(found.kernel.source_sha256) == text
    assert sources_missing(elsewhere, written) == (0, 1)


def test_an_import_says_of_how_many_kernels_the_source_is_missing(
    opened: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, knowledge = seen("here"), opened("kb")
    for microseconds in (5.0, 4.0):
        knowledge.keep_kernel(here, *won(here, microseconds))
    document = export(knowledge, measured=False, whole=True)
    kept = dict(list(document.sources.items())[:1])
    for sources, said in ((kept, "of 1 of 2 kernels"), ({}, "of 2 of 2 kernels")):
        file = tmp_path / f"{len(sources)}.json"
        file.write_text(document.model_copy(update={"sources": sources}).model_dump_json())
        kb_import(file, tmp_path / f"elsewhere {len(sources)}")
        assert f"{said} the source is not in the document" in capsys.readouterr().out
    kb_import(tmp_path / "1.json", tmp_path / "kb")
    assert "not in the document" not in capsys.readouterr().out, "it is held already"


@pytest.mark.parametrize("memory", [mode for mode in get_args(Memory) if mode != "live"])
def test_what_is_not_live_keeps_nothing_and_some_read_nothing(
    opened: Opened, tmp_path: Path, memory: Memory
) -> None:
    here = seen("here")
    kernel, text = won(here, 5.0)
    opened("kb").keep_kernel(here, kernel, text)
    faster, its_text = won(here, 1.0)
    with open_under(Ablation(memory), tmp_path / "kb", SEED) as knowledge:
        assert not knowledge.keep_kernel(here, faster, its_text)
        assert not knowledge.see_task(seen("new"))
        found = knowledge.kernels_bearing_on(here, "simulated", "H100")
        assert len(found) == (0 if memory in ("off", "seed") else 1)
    assert [each.id for each in opened("kb").kernels_won()] == [kernel.id]
    assert [each.name for each in opened("kb").tasks_seen()] == ["here"]


def test_a_source_is_restated_under_the_names_of_another_task() -> None:
    source = "a = X_SIZE_0 * DIM_N + X_NUMEL; // MAX_SIZE_0 stays, x too\n"
    now = variant(4096, x="values", dimension="ROWS")
    expected = "a = VALUES_SIZE_0 * DIM_ROWS + VALUES_NUMEL; // MAX_SIZE_0 stays, x too\n"
    assert renamed(source, variant(64), now) == expected
    assert renamed(source, variant(64), variant(4096)) == source
    swapped = renamed("A_NUMEL B_NUMEL", _pair("a", "b"), _pair("b", "a"))
    assert swapped == "B_NUMEL A_NUMEL", "at once, not one after the other"


def _pair(first: str, second: str) -> TaskVariant:
    tensors = tuple(
        TensorSpec(name=name, shape=(8,), dtype="float32", role="input") for name in (first, second)
    )
    return TaskVariant(name="full", dimensions={}, tensors=tensors)
