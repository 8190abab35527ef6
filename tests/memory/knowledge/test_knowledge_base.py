"""The knowledge base: snapshots that hold still, merges that commute, an index that may break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelblaster.harness.errors import UserError
from kernelblaster.memory.knowledge.journal import Entry, Journal
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.retrieval.words import embed_words
from kernelblaster.memory.knowledge.snapshots.contents import EVIDENCE, Contents
from kernelblaster.memory.knowledge.snapshots.snapshot import Snapshot
from kernelblaster.memory.knowledge.states.dimensions import AT_BOUND, DIMENSIONS, EARLIER, UNKNOWN
from kernelblaster.memory.knowledge.states.matching import discover
from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.lessons import Lesson, Withdrawal
from kernelblaster.memory.records.optimizations import StateOptimization
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import Signature
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed

HERE = PolicyContext(
    device_kind="simulated",
    gpu="H100",
    arch="sm_90",
    family="hopper",
    op_class="elementwise",
    dtype="float32",
)
MEASURED = HERE.model_copy(update={"device_kind": "cuda"})
STRANGE = Signature(
    values=tuple(0.0 if i == AT_BOUND else float(i % 2) for i in range(len(DIMENSIONS)))
)


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as opened:
        yield opened


def evidence(number: int, log_gain: float | None = 0.5, **changes: object) -> Evidence:
    facts: dict[str, object] = {
        "task_id": "t",
        "run": "r",
        "iteration": 0,
        "rollout": 0,
        "step": number,
        "op_class": "elementwise",
        "dtype": "float32",
        "parent_sha256": f"parent {number}",
        "child_sha256": f"child {number}",
        "state_before": "dram_bandwidth_bound",
        "signature_before": centroid_of({}),
        "technique": "vectorize_memory_access",
        "expected_log_gain": 0.1,
        "outcome": "crashed" if log_gain is None else "passed",
        "log_gain": log_gain,
        "device_kind": "simulated",
        "gpu": "H100",
        "arch": "sm_90",
        "family": "hopper",
        "toolchain": "nvcc 13.0",
        "author": "builtin",
    }
    return Evidence.model_validate({**facts, **changes})


def lesson(**changes: object) -> Lesson:
    facts: dict[str, object] = {
        "text": "Vectorised access gains little where rows start at odd offsets.",
        "kind": "correction",
        "technique": "vectorize_memory_access",
        "state": "dram_bandwidth_bound",
        "claimed_log_gain": 0.02,
        "device_kind": "simulated",
        "author": "builtin",
        "run": "r",
        "iteration": 0,
    }
    return Lesson.model_validate({**facts, **changes})


def learn(knowledge: KnowledgeBase, *lessons: Lesson) -> int:
    return knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=lessons))


def read_everything(knowledge: KnowledgeBase, at: int) -> object:
    """Return all that can be read at a sequence number, to be compared later."""
    signatures = [STRANGE, *(Signature(values=state.centroid) for state in knowledge.states(at))]
    return (
        knowledge.states(at),
        knowledge.lessons(at),
        [knowledge.match_state(found, "dram", "l2", at) for found in signatures],
        [knowledge.candidates(state, HERE, at) for state in knowledge.states(at)],
        knowledge.stats(at),
        knowledge.show(at),
    )


# The directory


def test_a_new_knowledge_base_is_made_once_and_found_again(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "kb"
    with KnowledgeBase.open(place, knowledge_seed()) as made:
        made.add_evidence([evidence(0)])
    assert json.loads((place / "kb.json").read_text())["format"] == "kernelblaster-knowledge-base"
    with KnowledgeBase.open(place, knowledge_seed(), create=False) as found:
        assert found.stats()["evidence"] == 1
        assert found.sequence() == 1
    with pytest.raises(UserError, match="no knowledge base"):
        KnowledgeBase.open(tmp_path / "other", knowledge_seed(), create=False)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.tex": "x"}, "not a knowledge base"),
        ({"kb.json": '{"format": "keepass", "version": 1}'}, "another program"),
        ({"kb.json": "[1, 2]"}, "another program"),
        ({"kb.json": "not json"}, "is damaged"),
        (
            {"kb.json": '{"format": "kernelblaster-knowledge-base", "version": 99}'},
            "version 99",
        ),
        (
            {
                "kb.json": '{"format": "kernelblaster-knowledge-base", "version": 1,'
                ' "signature": "signature/v0"}'
            },
            "signature/v0",
        ),
    ],
)
def test_a_foreign_directory_is_refused_untouched(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        KnowledgeBase.open(tmp_path, knowledge_seed())
    assert "\n" not in str(refused.value)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kb").write_text("x")
    with pytest.raises(UserError, match="not a directory"):
        KnowledgeBase.open(tmp_path / "kb", knowledge_seed())


def test_a_creation_that_was_killed_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / ".kb.json.writing").write_text("{")
    KnowledgeBase.open(tmp_path, knowledge_seed()).close()
    assert (tmp_path / "kb.json").exists()


# Evidence


def test_the_same_evidence_twice_is_one_row(knowledge: KnowledgeBase) -> None:
    assert knowledge.add_evidence([evidence(0), evidence(1)]) == 2
    before = knowledge.sequence(), knowledge.candidates("dram_bandwidth_bound", HERE)
    assert knowledge.add_evidence([evidence(1, created="later"), evidence(0)]) == 0
    assert (knowledge.sequence(), knowledge.candidates("dram_bandwidth_bound", HERE)) == before


def test_evidence_comes_in_order_of_id_and_by_kind_of_device(knowledge: KnowledgeBase) -> None:
    rows = [evidence(i, device_kind="cuda" if i % 2 else "simulated") for i in range(6)]
    knowledge.add_evidence(reversed(rows))
    found = knowledge.snapshot().evidence()
    assert [row.id for row in found] == sorted(row.id for row in rows)
    assert all(told.id == told.row.id for told in knowledge.snapshot().told())
    assert knowledge.stats()["evidence_simulated"] == 3
    assert len(knowledge.snapshot(2).evidence()) == 2


picks = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, -0.2, 0.4])), max_size=6)


@given(picks, picks, picks)
@settings(max_examples=15, deadline=None)
def test_merging_is_idempotent_commutative_and_associative(
    one: list[tuple[int, float | None]],
    two: list[tuple[int, float | None]],
    three: list[tuple[int, float | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened: list[Journal] = []

        def store(*parts: Journal) -> Journal:
            opened.append(Journal(Path(folder) / f"{len(opened)}.sqlite"))
            for part in parts:
                opened[-1].merge(part)
            return opened[-1]

        def rows(journal: Journal) -> list[tuple[str, Evidence]]:
            contents = Contents(journal, knowledge_seed())
            contents.read()
            return sorted(((told.id, told.row) for told in contents.facts.told(10**9)), key=str)

        sources = []
        for part in (one, two, three):
            made = [evidence(number, gain) for number, gain in part]
            source = store()
            source.append(Entry(EVIDENCE, row.id, row.model_dump_json()) for row in made)
            sources.append(source)
        a, b, c = sources
        found = rows(store(a, b, c))
        assert rows(store(c, b, a)) == rows(store(b, a, c, a, b)) == found
        assert rows(store(store(a, b), c)) == rows(store(a, store(b, c))) == found
        assert {identity for identity, _ in found} == {
            evidence(number, gain).id for number, gain in (*one, *two, *three)
        }
        for journal in opened:
            journal.close()


def test_merging_knowledge_bases_takes_everything_over(tmp_path: Path) -> None:
    with (
        KnowledgeBase.open(tmp_path / "a", knowledge_seed()) as a,
        KnowledgeBase.open(tmp_path / "b", knowledge_seed()) as b,
        KnowledgeBase.open(tmp_path / "ab", knowledge_seed()) as ab,
        KnowledgeBase.open(tmp_path / "ba", knowledge_seed()) as ba,
    ):
        a.add_evidence(evidence(i, 0.3) for i in range(3))
        b.add_evidence(evidence(i, None) for i in range(2, 5))
        learn(a, lesson())
        b.add_state(discover(STRANGE, "dram", None))
        assert ab.merge(a) == 5 and ab.merge(b) == 4
        ba.merge(b)
        ba.merge(a)
        assert ab.merge(a) == ab.merge(b) == ab.merge(ba) == 0
        assert ab.states() == ba.states()
        assert [item.text for item in ab.lessons()] == [item.text for item in ba.lessons()]
        for state in ab.states():
            assert ab.candidates(state, HERE) == ba.candidates(state, HERE)


# Snapshots


def test_what_is_read_at_a_sequence_number_never_changes(knowledge: KnowledgeBase) -> None:
    knowledge.add_evidence(evidence(i, 0.2 * i) for i in range(4))
    learn(knowledge, lesson())
    at = knowledge.sequence()
    before = read_everything(knowledge, at)
    knowledge.add_evidence(evidence(10 + i, None, previous_technique="fast_math") for i in range(5))
    knowledge.apply_update(
        KnowledgeUpdate(
            run="r",
            iteration=1,
            states=(discover(STRANGE, "dram", "l2"),),
            lessons=(lesson(iteration=1, kind="deprecation"),),
        )
    )
    assert read_everything(knowledge, at) == before
    for number in range(knowledge.sequence()):  # more snapshots than are kept
        knowledge.stats(number)
    assert read_everything(knowledge, at) == before
    assert read_everything(knowledge, knowledge.sequence()) != before


def test_evidence_moves_the_ranking_of_the_next_snapshot(knowledge: KnowledgeBase) -> None:
    first = knowledge.sequence()
    worst = knowledge.candidates("dram_bandwidth_bound", HERE)[-1].optimization
    knowledge.add_evidence(
        evidence(i, 1.5, technique=worst.technique, task_id=f"t{i}") for i in range(6)
    )
    best = knowledge.candidates("dram_bandwidth_bound", HERE)[0]
    assert best.optimization.technique == worst.technique and best.expected.mean_log > 0.8
    assert knowledge.candidates("dram_bandwidth_bound", HERE, first)[-1].optimization == worst
    gains = {
        kind: knowledge.beliefs("dram_bandwidth_bound", [worst], context)[0].expected
        for kind, context in (("simulated", HERE), ("measured", MEASURED))
    }
    assert gains["measured"].std_log > gains["simulated"].std_log, "a weak prior for measured"


def test_beliefs_answer_every_name_in_order(knowledge: KnowledgeBase) -> None:
    names = ["vectorize_memory_access", "tensor_cores_wmma", "never_heard_of"]
    tried = HERE.model_copy(update={"tried": tuple(names)})
    found = knowledge.beliefs("dram_bandwidth_bound", names, tried)
    assert [each.optimization.technique for each in found] == names
    listed = {
        each.optimization.technique: each for each in knowledge.candidates("l2_bound", HERE)
    }
    told, *_ = knowledge.beliefs("l2_bound", names, HERE)
    assert told == listed["vectorize_memory_access"]
    with pytest.raises(UserError, match="knows no state"):
        knowledge.beliefs("nowhere", names, HERE)


def test_counts_say_how_often_a_state_was_seen(knowledge: KnowledgeBase) -> None:
    knowledge.add_evidence(evidence(i) for i in range(3))
    state = knowledge.state("dram_bandwidth_bound")
    assert state is not None and state.count == 3
    stats = knowledge.stats()
    assert stats["evidence"] == stats["passed"] == stats["evidence_simulated"] == 3
    shown = next(item for item in knowledge.show() if item["id"] == "dram_bandwidth_bound")
    row = next(
        item for item in shown["optimizations"] if item["technique"] == "vectorize_memory_access"
    )
    assert (row["tries"], row["passed"], row["mean_log_gain"]) == (3, 3, 0.5)
    json.dumps(knowledge.show())
    measured = next(
        item for item in knowledge.show(device_kind="cuda") if item["id"] == "dram_bandwidth_bound"
    )
    assert all(item["tries"] == 0 for item in measured["optimizations"]), "simulated ones apart"


# Updates and lessons


def test_an_update_is_applied_whole_and_once(knowledge: KnowledgeBase) -> None:
    base = knowledge.candidates("dram_bandwidth_bound", HERE)[0].optimization
    change = StateOptimization(
        state_id="dram_bandwidth_bound",
        optimization=base.model_copy(update={"notes": "better notes", "prior_log_gain": 0.9}),
        device_kind="simulated",
        revision=1,
        author="builtin",
    )
    update = KnowledgeUpdate(run="r", iteration=0, optimizations=(change,), lessons=(lesson(),))
    at = knowledge.apply_update(update)
    assert at == knowledge.sequence() == 3
    assert knowledge.apply_update(update) == knowledge.sequence() == at
    best = knowledge.candidates("dram_bandwidth_bound", HERE)[0]
    assert best.optimization == change.optimization
    measured = {
        each.optimization.technique: each
        for each in knowledge.candidates("dram_bandwidth_bound", MEASURED)
    }
    assert measured[base.technique].optimization == base
    assert best.expected.mean_log > measured[base.technique].expected.mean_log
    older = change.model_copy(update={"optimization": base, "revision": 1})
    newer = change.model_copy(update={"optimization": base, "revision": 2})
    for each in (newer, older):
        knowledge.apply_update(KnowledgeUpdate(run="s", iteration=0, optimizations=(each,)))
    found = knowledge.beliefs("dram_bandwidth_bound", [base.technique], HERE)
    assert found[0].optimization == base


def test_an_update_repeated_after_others_wrote_names_its_own_snapshot(
    knowledge: KnowledgeBase,
) -> None:
    update = KnowledgeUpdate(run="r", iteration=0, lessons=(lesson(),))
    first = knowledge.apply_update(update)
    assert len(knowledge.lessons(first)) == 1, "the number's snapshot has the update in it"
    knowledge.add_evidence(evidence(i) for i in range(3))
    assert knowledge.apply_update(update) == first < knowledge.sequence()


def test_an_update_that_fails_leaves_nothing(
    knowledge: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = KnowledgeUpdate(
        run="r", iteration=0, lessons=tuple(lesson(text=f"lesson {i}") for i in range(3))
    )
    database = knowledge._journal.database
    execute, calls = database.execute, []

    def fail_late(sql: str, parameters: tuple[object, ...] = ()) -> int:
        calls.append(sql)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return execute(sql, parameters)

    monkeypatch.setattr(database, "execute", fail_late)
    with pytest.raises(KeyboardInterrupt):
        knowledge.apply_update(update)
    monkeypatch.undo()
    assert knowledge.sequence() == 0 and knowledge.written_lessons() == []
    assert knowledge.apply_update(update)
    assert len(knowledge.written_lessons()) == 3


def test_a_lesson_that_later_evidence_turns_against_is_contested(
    knowledge: KnowledgeBase,
) -> None:
    knowledge.add_evidence(evidence(i, -0.4) for i in range(3))
    learn(knowledge, lesson(claimed_log_gain=0.3))
    assert not knowledge.lessons()[0].contested, "evidence from before does not count"
    assert knowledge.lessons()[0].created == 4
    knowledge.add_evidence(evidence(10 + i, -0.4, device_kind="cuda") for i in range(3))
    assert not knowledge.lessons()[0].contested, "another kind of device"
    knowledge.add_evidence(evidence(20 + i, -0.4) for i in range(3))
    assert knowledge.lessons()[0].contested
    assert knowledge.lessons(technique="fast_math") == []
    assert len(knowledge.lessons(state="dram_bandwidth_bound")) == 1


def test_a_withdrawn_lesson_is_read_no_more_and_nowhere(
    knowledge: KnowledgeBase, tmp_path: Path
) -> None:
    bad, good = lesson(kind="deprecation", text="zebra one"), lesson(text="zebra two")
    before = learn(knowledge, bad, good)
    withdrawals = (Withdrawal(lesson=bad.id),)
    change = KnowledgeUpdate(run="r", iteration=1, withdrawals=withdrawals)
    after = knowledge.apply_update(change)
    assert knowledge.apply_update(change) == after > before
    learn(knowledge, bad)
    with KnowledgeBase.open(tmp_path / "other", knowledge_seed()) as other:
        other.merge(knowledge)
        for each in (knowledge, other):
            assert [found.text for found in each.lessons()] == ["zebra two"]
            assert [found.text for found in each.search("zebra", "simulated")] == ["zebra two"]
            assert not each.deprecated("dram_bandwidth_bound", HERE)
    assert len(knowledge.lessons(before)) == 2, "what was read at a number stays"
    assert knowledge.deprecated("dram_bandwidth_bound", HERE, before)


def test_a_composite_lesson_is_judged_by_its_last_step(knowledge: KnowledgeBase) -> None:
    learn(
        knowledge,
        lesson(
            kind="composite",
            technique="fast_math then vectorize_memory_access",
            claimed_log_gain=0.4,
        ),
    )
    knowledge.add_evidence(evidence(i, -0.3) for i in range(3))
    assert not knowledge.lessons()[0].contested
    knowledge.add_evidence(evidence(10 + i, -0.3, previous_technique="fast_math") for i in range(3))
    assert knowledge.lessons()[0].contested


def test_a_deprecated_technique_is_left_out_until_evidence_contests_it(
    knowledge: KnowledgeBase,
) -> None:
    def offered(context: PolicyContext) -> bool:
        found = knowledge.candidates("dram_bandwidth_bound", context)
        return "vectorize_memory_access" in {item.optimization.technique for item in found}

    learn(knowledge, lesson(kind="deprecation", claimed_log_gain=None))
    assert not offered(HERE) and offered(MEASURED)
    knowledge.add_evidence(evidence(i, 0.5) for i in range(2))
    assert offered(HERE)


def test_a_deprecation_speaks_of_its_class_of_operation_alone(knowledge: KnowledgeBase) -> None:
    learn(knowledge, lesson(kind="deprecation", claimed_log_gain=None, op_class="softmax"))
    softmax, matmul = (HERE.model_copy(update={"op_class": n}) for n in ("softmax", "matmul"))
    state, technique = "dram_bandwidth_bound", "vectorize_memory_access"
    assert knowledge.deprecated(state, softmax) == {technique}
    assert knowledge.deprecated("l2_bound", softmax) == frozenset()
    assert knowledge.deprecated(state, matmul) == frozenset()

    def offered(context: PolicyContext) -> set[str]:
        return {each.optimization.technique for each in knowledge.candidates(state, context)}

    assert technique in offered(matmul) - offered(softmax)
    knowledge.add_evidence([evidence(0, -0.2, op_class="matmul"), evidence(1, None)])
    assert knowledge.deprecated(state, softmax), "another class of operation, and a failure"
    knowledge.add_evidence([evidence(2, -0.2, op_class="softmax")])
    assert not knowledge.deprecated(state, softmax), "slower, but it passed: it is safe"
    assert knowledge.lessons()[0].contested


# States and their index


def test_overlapping_finds_are_one_state_whichever_came_first(tmp_path: Path) -> None:
    """Its evidence, lessons and listings are one too, and both names are understood."""
    values = list(STRANGE.values)
    values[5] = 0.4
    one, two = discover(STRANGE, "dram", "l2"), discover(Signature(values=values), "dram", None)
    first, second = sorted((one, two), key=lambda state: state.id)
    seen = []
    for number, order in enumerate(((one, two), (two, one))):
        with KnowledgeBase.open(tmp_path / str(number), knowledge_seed()) as knowledge:
            for state in order:
                knowledge.add_state(state)
                knowledge.add_evidence([evidence(number, state_before=state.id, run=state.id)])
                learn(knowledge, lesson(state=state.id, text=f"Learned in {state.id}."))
            (standing,) = (each for each in knowledge.states() if each.origin == "discovered")
            assert (standing.id, standing.count) == (first.id, 2)
            assert knowledge.state(second.id) == standing
            told = knowledge.lessons(state=first.id)
            assert told and told == knowledge.lessons(state=second.id)
            seen.append([each.text for each in told])
            named = discover(STRANGE, "dram", "l2").model_copy(
                update={"id": "told_apart", "description": "Somebody knows what it is."}
            )
            knowledge.add_state(named)
            ids = (first.id, second.id, "told_apart")
            assert {knowledge.state(name).id for name in ids} == {"told_apart"}  # type: ignore[union-attr]
    assert seen[0] == seen[1]


def test_a_base_of_the_earlier_layout_is_read_and_marked(tmp_path: Path) -> None:
    place = tmp_path / "kb"
    earlier = STRANGE.values[:EARLIER]
    row = evidence(0, signature_before=earlier)
    state = discover(STRANGE, "dram", "l2").model_copy(update={"centroid": earlier})
    with KnowledgeBase.open(place, knowledge_seed()) as older:
        older.add_evidence([row])
        older.add_state(state)
    marker = json.loads((place / "kb.json").read_text())
    (place / "kb.json").write_text(json.dumps(marker | {"signature": "signature/v1"}))
    with KnowledgeBase.open(place, knowledge_seed()) as today:
        (told,) = today.snapshot().told()
        assert told.id == row.id and told.row.signature_before[:EARLIER] == earlier
        assert set(told.row.signature_before[EARLIER:AT_BOUND]) == {UNKNOWN}
        assert today.match_state(STRANGE, "dram", "l2")[0].id == state.id
    assert json.loads((place / "kb.json").read_text()) == marker


def test_a_discovered_state_is_found_again_once_added(knowledge: KnowledgeBase) -> None:
    at = knowledge.sequence()
    state, away, discovered = knowledge.match_state(STRANGE, "dram", "l2")
    assert discovered and state.origin == "discovered" and away > state.spread
    assert knowledge.candidates(state, HERE), "a new state has things to try at once"
    assert knowledge.add_state(state) and not knowledge.add_state(state)
    nearby = Signature(values=tuple(abs(value - 0.04) for value in STRANGE.values))
    again, away, discovered = knowledge.match_state(nearby, "dram", "l2")
    assert (again.id, discovered) == (state.id, False) and away < state.spread
    assert knowledge.match_state(nearby, "dram", "l2", at)[2], "not in the older snapshot"


def test_the_embedding_is_registered_under_its_name(knowledge: KnowledgeBase) -> None:
    seed = knowledge.seed()
    assert knowledge.reindex() == len(seed.states) + len(seed.techniques)
    from chromadb.utils.embedding_functions import known_embedding_functions

    from kernelblaster.memory.knowledge.retrieval.embedding import WORDS_EMBEDDING, WordsEmbedding

    assert WORDS_EMBEDDING == "kernelblaster-words-v1"
    assert known_embedding_functions[WORDS_EMBEDDING] is WordsEmbedding
    again = WordsEmbedding.build_from_config(WordsEmbedding().get_config())
    assert len(again(["a zebra"])[0]) == len(embed_words("a zebra"))


OTHER_PROCESS = """
import sys
from pathlib import Path
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.tools.techniques.catalogue import knowledge_seed
from kernelblaster.memory.records import Evidence, PerformanceState, Signature
with KnowledgeBase.open(Path(sys.argv[1]), knowledge_seed()) as knowledge:
    state = PerformanceState.model_validate_json(sys.stdin.readline())
    knowledge.add_state(state)
    found, _, new = knowledge.match_state(Signature(values=state.centroid), state.primary)
    print(knowledge.owns_index, found.id == state.id, new, "chromadb" in sys.modules)
"""


def test_a_second_process_writes_and_reads_beside_the_owner(knowledge: KnowledgeBase) -> None:
    knowledge.match_state(STRANGE, "dram")
    state = discover(STRANGE, "dram", None)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(knowledge.directory)],
        input=state.model_dump_json() + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.stdout.split() == ["False", "True", "False", "False"], done.stderr
    assert knowledge.match_state(STRANGE, "dram")[0].id == state.id
    with KnowledgeBase.open(knowledge.directory, knowledge_seed()) as second:
        with pytest.raises(UserError, match="in use by another process"):
            second.reindex()


def test_opening_reading_and_writing_need_no_chroma(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase;"
        "from kernelblaster.tools.techniques.catalogue import knowledge_seed;"
        f"k = KnowledgeBase.open(Path({str(tmp_path / 'kb')!r}), knowledge_seed());"
        "k.stats(); k.show(); k.states(); print('chromadb' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_snapshot_is_derived_from_its_rows_alone(knowledge: KnowledgeBase) -> None:
    knowledge.add_evidence(evidence(i, 0.1 * i) for i in range(5))
    at = knowledge.sequence()
    before = knowledge.candidates("dram_bandwidth_bound", HERE, at)
    knowledge.add_evidence(evidence(10 + i, -0.3) for i in range(5))
    contents = Contents(knowledge._journal, knowledge.seed())
    contents.read()
    anew = Snapshot(contents, at)
    state = anew.state("dram_bandwidth_bound")
    assert state is not None and state.count == 5
    found = anew.policy("simulated").candidates(state, HERE)
    assert found == before == knowledge.candidates(state.id, HERE, at)


# Reading on


def test_what_was_read_is_not_read_again_and_what_another_wrote_is(
    knowledge: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge.add_evidence(evidence(i) for i in range(3))
    parsed: list[str] = []
    take = Contents._take

    def note(self: Contents, entry: Entry) -> None:
        parsed.append(entry.id)
        take(self, entry)

    monkeypatch.setattr(Contents, "_take", note)
    knowledge.candidates("dram_bandwidth_bound", HERE)
    with KnowledgeBase.open(knowledge.directory, knowledge_seed()) as other:
        other.add_evidence([evidence(3)])
    knowledge.add_evidence([evidence(4)])
    assert knowledge.stats()["evidence"] == 5
    assert knowledge.stats(at=3)["evidence"] == 3
    assert parsed == [evidence(i).id for i in range(5)]


kinds = st.lists(
    st.tuples(
        st.sampled_from(["evidence", "lesson", "listing", "state"]),
        st.integers(0, 3),
        st.sampled_from([None, -0.4, 0.3, 0.3000000001]),
        st.sampled_from(["simulated", "cuda"]),
        st.sampled_from(["fast_math", "tma_loads"]),
    ),
    min_size=1,
    max_size=14,
)


def write(
    knowledge: KnowledgeBase, number: int, item: tuple[str, int, float | None, str, str]
) -> None:
    """Write one thing; some are repeats of others, timed or named otherwise."""
    kind, which, gain, device, technique = item
    row = evidence(
        which, gain, device_kind=device, technique=technique, run=f"run {number}",
        standard_error=0.01 * number, parameters={"items": which % 2},
        state_before=["dram_bandwidth_bound", "l2_bound"][which % 2],
        child_sha256=f"parent {which + 1}",
    )  # fmt: skip
    if kind == "evidence":
        knowledge.add_evidence([row])
    elif kind == "lesson":
        how = "deprecation" if which == 3 else "correction"
        learn(knowledge, lesson(text=f"lesson {number}", kind=how, technique=technique,
                                claimed_log_gain=gain, device_kind=device))  # fmt: skip
    elif kind == "listing":
        base = knowledge.seed().techniques["fast_math"].model_copy(
            update={"technique": technique, "prior_log_gain": 0.2, "prior_evidence": (row.id,)}
        )
        change = StateOptimization(state_id="l2_bound", optimization=base, device_kind=device,
                                   revision=1 + which, author="builtin")  # fmt: skip
        update = KnowledgeUpdate(run=f"{number}", iteration=0, optimizations=(change,))
        knowledge.apply_update(update)
    else:
        values = tuple(0.2 * which if i % 3 else 0.8 for i in range(len(DIMENSIONS)))
        knowledge.add_state(discover(Signature(values=values), "dram", None))


@given(kinds)
@settings(max_examples=10, deadline=None)
def test_a_base_held_open_answers_as_one_opened_anew(
    items: list[tuple[str, int, float | None, str, str]]
) -> None:
    def answers(knowledge: KnowledgeBase, at: int) -> object:
        contexts = (HERE, MEASURED)
        where = knowledge.states(at)[-1].id, "dram_bandwidth_bound", "l2_bound"
        return (
            knowledge.states(at),
            knowledge.lessons(at),
            [knowledge.candidates(name, context, at) for name in where for context in contexts],
            [knowledge.snapshot(at).optimizations(kind) for kind in ("simulated", "cuda")],
            knowledge.snapshot(at).evidence(),
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kb"
        told: list[tuple[int, object]] = []
        with KnowledgeBase.open(place, knowledge_seed()) as held:
            for number, item in enumerate(items):
                write(held, number, item)
                told.append((held.sequence(), answers(held, held.sequence())))
            for at, before in told:
                assert answers(held, at) == before, "asked again, in another order"
        for at, before in told:
            with KnowledgeBase.open(place, knowledge_seed()) as anew:
                assert answers(anew, at) == before


def test_evidence_may_come_before_its_state(knowledge: KnowledgeBase) -> None:
    """As where two bases are merged: until then it counts by its own signature."""
    state = discover(STRANGE, "dram", None)
    knowledge.add_evidence([evidence(0, state_before=state.id, signature_before=STRANGE.values)])
    early = knowledge.sequence()
    knowledge.add_state(state)
    late = knowledge.sequence()
    found = [knowledge.candidates("l2_bound", HERE, at) for at in (late, early, late)]
    with KnowledgeBase.open(knowledge.directory, knowledge_seed()) as other:
        assert other.candidates("l2_bound", HERE, early) == found[1]
        assert other.candidates("l2_bound", HERE, late) == found[0] == found[2]


def test_lessons_are_in_the_same_order_whatever_the_run_is_called(tmp_path: Path) -> None:
    texts = [f"{word} pays." for word in ("Tiling", "Padding", "Unrolling", "Packing", "Fusing")]
    orders = []
    for run in ("first", "second", "third"):
        with KnowledgeBase.open(tmp_path / run, knowledge_seed()) as knowledge:
            rows = [evidence(i, run=run) for i in range(len(texts))]
            knowledge.apply_update(
                KnowledgeUpdate(
                    run=run,
                    iteration=0,
                    lessons=tuple(
                        lesson(text=text, run=run, evidence=(row.id,))
                        for text, row in zip(texts, rows, strict=True)
                    ),
                )
            )
            orders.append([item.text for item in knowledge.written_lessons()])
    assert orders[0] == orders[1] == orders[2] == sorted(texts)
