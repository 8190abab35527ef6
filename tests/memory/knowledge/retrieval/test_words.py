"""Search by words: what is found, that Chroma finds what computing finds, and when it is stale."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.records.tasks import TaskVariant
from kernelblaster.memory.knowledge.kernels import KnownKernel, TaskSeen
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.retrieval.words import (
    DIMENSIONS,
    Rarity,
    embed_words,
    ranked,
    stems,
)
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

WORDS = "tile warp barrier shuffle padding occupancy register spill cache stride vector".split()


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as opened:
        yield opened


def teach(knowledge: KnowledgeBase, text: str, device: str = "simulated") -> Lesson:
    lesson = Lesson(
        text=text, kind="correction", technique="fast_math", device_kind=device,
        author="builtin", run="r", iteration=len(text),
    )  # fmt: skip
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=len(text), lessons=(lesson,)))
    return lesson


def names(knowledge: KnowledgeBase, words: str, at: int | None = None) -> list[str]:
    return [each.name for each in knowledge.search(words, "simulated", at)]


@pytest.mark.parametrize(
    ("one", "other"),
    [("coalesced", "coalescing"), ("padding", "pads"), ("vectorized", "vectorize"),
     ("Shuffles", "shuffle"), ("spilled", "spills"), ("tiling", "tiled")],
)  # fmt: skip
def test_forms_of_a_word_are_one_word(one: str, other: str) -> None:
    assert stems(one) == stems(other)


def test_words_of_no_use_and_signs_do_not_count() -> None:
    assert not stems("what is it, and why? /* — */")
    assert embed_words("the of") == [0.0] * DIMENSIONS
    assert stems("pad_shared_memory") == stems("Pad shared memory!")


@given(st.text(max_size=200))
def test_any_text_has_a_vector_of_length_one_or_none(text: str) -> None:
    length = sum(value * value for value in embed_words(text))
    assert abs(length - 1) < 1e-9 or length == 0
    assert ranked(text, [text], Rarity([text])) == ([0] if stems(text) else [])


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    texts = ["memory memory memory", "memory of a zebra", "no such thing"]
    assert ranked("zebra memory", texts, Rarity(texts)) == [1, 0]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bank conflicts of shared memory", {"pad_shared_memory", "swizzle_shared_memory"}),
        ("uncoalesced global loads", {"uncoalesced_global_access"}),
        ("subtract the maximum before exp", {"drop_max_subtraction"}),
        ("how many threads a block?", {"tune_block_size"}),
        ("variance in one pass", {"single_pass_variance"}),
    ],
)
def test_a_question_finds_what_an_engineer_would_look_up(
    knowledge: KnowledgeBase, asked: str, expected: set[str]
) -> None:
    assert expected & set(names(knowledge, asked)[:4])


def test_every_technique_is_found_by_its_name(knowledge: KnowledgeBase) -> None:
    for name in knowledge.seed().techniques:
        assert name in names(knowledge, name.replace("_", " "))[:4]


def test_a_search_at_a_number_does_not_see_what_came_later(knowledge: KnowledgeBase) -> None:
    first = teach(knowledge, "Zebra stripes of a tile.")
    at = knowledge.sequence()
    second = teach(knowledge, "Another zebra.")
    assert names(knowledge, "zebra", at) == [first.id]
    assert set(names(knowledge, "zebra")) == {first.id, second.id}


def test_a_search_may_ask_for_some_kinds_alone(knowledge: KnowledgeBase) -> None:
    found = knowledge.search("bank conflicts of shared memory", "simulated", kinds=("state",))
    assert found[0].name == "shared_bank_conflicts" and {each.kind for each in found} == {"state"}


def test_lessons_of_other_devices_are_left_out(knowledge: KnowledgeBase) -> None:
    simulated = teach(knowledge, "Zebra on a simulator.")
    measured = teach(knowledge, "Zebra on a real GPU, measured.", "cuda")
    assert names(knowledge, "zebra") == [simulated.id]
    assert [each.name for each in knowledge.search("zebra", "deferred")] == [measured.id]


def test_chroma_finds_what_computing_finds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(3)
    with (
        KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as owner,
        KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as other,
    ):
        assert owner.owns_index and not other.owns_index
        lessons = tuple(
            Lesson(
                text=f"Lesson {n}: {' '.join(source.choices(WORDS, k=9))} {n}.", run="r",
                kind="correction", device_kind="simulated", author="builtin", iteration=n,
            )
            for n in range(300)
        )  # fmt: skip
        owner.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=lessons))
        for _ in range(20):
            asked = " ".join(source.choices(WORDS, k=3))
            found = owner.search(asked, "simulated")
            assert found and found == other.search(asked, "simulated")
    assert not caplog.records, "Chroma answered, not the direct computation"


def test_the_index_is_made_anew_when_missing_broken_or_impossible(tmp_path: Path) -> None:
    place = tmp_path / "kb"

    def found() -> list[str]:
        with KnowledgeBase.open(place, knowledge_seed()) as opened:
            return names(opened, "zebra")

    with KnowledgeBase.open(place, knowledge_seed()) as opened:
        assert names(opened, "occupancy")
        lesson = teach(opened, "A zebra.")
    assert found() == [lesson.id], "stale"
    for file in (place / "chroma" / "texts").rglob("*"):
        if file.is_file():
            file.write_bytes(b"broken" * 1000)
    assert found() == [lesson.id], "broken"
    shutil.rmtree(place / "chroma")
    assert found() == [lesson.id], "missing"
    shutil.rmtree(place / "chroma")
    (place / "chroma").write_text("no directory at all")
    assert found() == [lesson.id], "computed directly"


def test_a_kernel_that_won_is_found_by_what_it_computes(knowledge: KnowledgeBase) -> None:
    sizes = TaskVariant(name="full", dimensions={}, tensors=())
    task = TaskSeen(
        task_id="t", name="zebra_norm", op_class="normalization", dtype="float32",
        operator_graph="g", operators=("mean", "rsqrt"), full=sizes,
    )  # fmt: skip
    won = KnownKernel(
        task_id="t", source_sha256="s" * 64, microseconds=2.0, first_us=8.0, gpu="H100",
        device_kind="simulated", arch="sm_90", harness="h", toolchain="nvcc", author="builtin",
        techniques=("single_pass_variance",), run="r",
    )  # fmt: skip
    knowledge.keep_kernel(task, won, "// source")
    knowledge.keep_kernel(task, won.model_copy(update={"run": "again"}), "// source")
    (found,) = knowledge.search("zebra rsqrt", "simulated")
    assert (found.kind, found.name) == ("kernel", won.source_sha256)
    assert "4.0x by single_pass_variance" in found.text
    assert knowledge.search("zebra", "cuda") == []
