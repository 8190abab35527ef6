"""Runs and knowledge bases that were damaged: one clear line each, and nothing else is touched."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from pydantic import BaseModel

from kernelblaster.graph.session import Interrupted
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.plan import RunPlan
from kernelblaster.settings import Settings
from kernelblaster.tools.techniques.catalogue import knowledge_seed

NESTED = "[" * 200_000 + "]" * 200_000
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, one stopped in the middle, and their knowledge base."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        graph_support.install(patch.setattr)
        asked = Asked.of(
            task="text.py", knowledge=str(folder / "kb"), iterations=1, rollouts=1, steps=2
        )
        finished = asked.session(folder / "finished")
        asyncio.run(finished.run())
        finished.close()
        stopped = asked.session(folder / "stopped")

        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                stopped.drain()

        with pytest.raises(Interrupted):
            asyncio.run(stopped.run(stop))
        stopped.close()
    for name in ("finished", "stopped", "kb"):
        shutil.copytree(folder / name, folder / "whole" / name)
    return folder


@pytest.fixture
def place(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as it was made."""
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(made)
    for name in ("finished", "stopped", "kb"):
        shutil.rmtree(made / name, ignore_errors=True)
        (made / name).unlink(missing_ok=True)
        shutil.copytree(made / "whole" / name, made / name)
    return made


def written(name: str, content: str | bytes) -> Damage:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def edited(**plan: Any) -> Damage:
    def change(folder: Path) -> None:
        document = json.loads((folder / "run.json").read_text())
        document["plan"] |= plan
        (folder / "run.json").write_text(json.dumps(document))

    return change


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def to_nowhere(name: str) -> Damage:
    def link(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to("/nowhere/at/all")

    return link


def folder_for_file(name: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def sql(name: str, *statements: str) -> Damage:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / name)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return change


def assert_one_line(done: Any, *words: str) -> None:
    told = done.err + done.out
    assert done.code == 2 and "Traceback" not in told, told
    complaint = [line for line in done.err.splitlines() if line.startswith("kernelblaster: ")]
    assert len(complaint) == 1 and len(complaint[0]) < 1000, done.err
    for word in words:
        assert word in complaint[0], complaint[0]


PLANS: dict[str, tuple[Damage, str]] = {
    "nested": (written("run.json", NESTED), "start a new run"),
    "nested in the plan": (
        written("run.json", '{"format": "kernelblaster-run/2", "plan": ' + NESTED + "}"),
        "start a new run",
    ),
    "no text": (written("run.json", b"\xff\x00"), "start a new run"),
    "a folder": (folder_for_file("run.json"), "a folder"),
    "a link to nowhere": (to_nowhere("run.json"), "no run directory"),
    "1e30 iterations": (edited(iterations=1e30), "plan.iterations"),
    "10**30 iterations": (edited(iterations=10**30), "plan.iterations"),
    "a seed beyond 64 bits": (edited(seed=1 << 63), "plan.seed"),
    "a dimension beyond 64 bits": (edited(dimensions={"N": 10**30}), "plan.dimensions.N"),
    "no plan": (written("run.json", '{"format": "kernelblaster-run/2", "plan": null}'), "run.json"),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("said", ["resume", "report"])
def test_a_plan(place: Path, command: Any, name: str, said: str) -> None:
    damage, words = PLANS[name]
    damage(place / "stopped")
    assert_one_line(command(said, "stopped"), "stopped", words)


@pytest.mark.parametrize("name", PLANS)
def test_a_list_of_runs_tells_which_is_damaged(
    place: Path, command: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANS[name][0](place / "stopped")
    monkeypatch.setenv("KERNELBLASTER_RUNS", str(place))
    done = command("runs", "--json")
    assert done.code == 0 and "Traceback" not in done.err
    runs = {Path(each["run"]).name: each["status"] for each in json.loads(done.out)["runs"]}
    assert runs["finished"] == "improved" and runs.get("stopped", "damaged") == "damaged"


FLIP = "UPDATE checkpoints SET checkpoint = CAST(substr(checkpoint, 1, 40) AS BLOB)"
CHECKPOINTS: dict[str, Damage] = {
    "another value": sql("checkpoints.sqlite", "UPDATE checkpoints SET checkpoint = x'00ff'"),
    "another kind": sql("checkpoints.sqlite", "UPDATE checkpoints SET type = 'json'"),
    "no kind": sql("checkpoints.sqlite", "UPDATE checkpoints SET type = NULL"),
    "no value": sql("checkpoints.sqlite", "UPDATE checkpoints SET checkpoint = NULL"),
    "a number": sql("checkpoints.sqlite", "UPDATE checkpoints SET checkpoint = 5"),
    "of another version": sql("checkpoints.sqlite", "UPDATE checkpoints SET type = 'msgpack'"),
    "a torn value": sql("checkpoints.sqlite", FLIP),
    "metadata": sql("checkpoints.sqlite", "UPDATE checkpoints SET metadata = '{'"),
    "nested metadata": sql(
        "checkpoints.sqlite", f"UPDATE checkpoints SET metadata = '{'[' * 50_000}'"
    ),
    "metadata of no text": sql("checkpoints.sqlite", "UPDATE checkpoints SET metadata = x'ff00'"),
    "no metadata": sql("checkpoints.sqlite", "UPDATE checkpoints SET metadata = NULL"),
    "another's id": sql(
        "checkpoints.sqlite",
        "UPDATE OR IGNORE checkpoints SET checkpoint_id = 'x' || checkpoint_id",
    ),
    "values are gone": sql("checkpoints.sqlite", "DELETE FROM channel_values"),
    "values are nothing": sql("checkpoints.sqlite", "UPDATE channel_values SET value = NULL"),
    "values of another kind": sql("checkpoints.sqlite", "UPDATE channel_values SET type = 5"),
    "another's values": sql(
        "checkpoints.sqlite",
        "UPDATE channel_values SET (type, value) = "
        "(SELECT type, value FROM channel_values LIMIT 1)",
    ),
    "junk": written("checkpoints.sqlite", b"junk" * 4000),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints(place: Path, command: Any, name: str) -> None:
    CHECKPOINTS[name](place / "stopped")
    done = command("resume", "stopped")
    assert_one_line(done, "checkpoints.sqlite is damaged", "start a new run")


@pytest.mark.parametrize("bit", [0, 3, 7])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    ("table", "column"), [("checkpoints", "checkpoint"), ("channel_values", "value")]
)
def test_any_bit_that_flips_is_seen(
    place: Path, command: Any, table: str, column: str, part: float, bit: int
) -> None:
    """Most of them decode, to another value: the run would go on with it."""
    path = place / "stopped" / "checkpoints.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        for row, value in rows:
            flipped = bytearray(value)
            flipped[int(len(flipped) * part)] ^= 1 << bit
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (bytes(flipped), row)
            )
        connection.commit()
    assert_one_line(command("resume", "stopped"), "checkpoints.sqlite is damaged")


def test_a_fault_of_a_node_is_no_damage(
    place: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node raises is a bug, with its traceback: only reading is told as damage."""

    async def faulty(*_: Any) -> Any:
        raise TypeError("a bug of a node")

    monkeypatch.setattr("kernelblaster.tools.evaluation.evaluator.Evaluator.compile", faulty)
    with pytest.raises(TypeError, match="a bug of a node"):
        command("resume", "stopped")


def test_what_was_not_damaged_goes_on(place: Path, command: Any) -> None:
    done = command("resume", "stopped", "--json")
    assert done.code == 0 and json.loads(done.out)["outcome"] == "improved"


ROWS: dict[str, tuple[Damage, str]] = {
    f"{table} of {kind}": (sql("run.sqlite", f"UPDATE {table} SET body = {value}"), "run.sqlite")
    for table in ("evaluations", "steps")
    for kind, value in {
        "no text": "x'ff00'", "nested": f"'{'[' * 50_000}'", "another record": "'{}'",
        "a number": "5",
    }.items()
} | {
    "no evaluation": (sql("run.sqlite", "DELETE FROM evaluations"), "run.sqlite holds no"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_run(place: Path, command: Any, name: str) -> None:
    damage, words = ROWS[name]
    damage(place / "stopped")
    assert_one_line(command("resume", "stopped"), words)


def test_a_report_that_is_no_text(place: Path, command: Any) -> None:
    (place / "finished" / "report.txt").write_bytes(b"\xff\xfe\x00")
    assert_one_line(command("report", "finished"), "report.txt is not a text file")
    assert_one_line(command("resume", "finished"), "report.txt is not a text file")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"calls": 1e30}', '{"calls": NaN}', "\0"])
def test_caps(place: Path, command: Any, text: str) -> None:
    (place / "stopped" / "budgets.json").write_text(text)
    assert_one_line(command("resume", "stopped"), "budgets.json is damaged", "--max-calls")


def test_each_of_several_runs_is_judged_by_itself(place: Path, command: Any) -> None:
    shutil.copytree(place / "stopped", place / "moved", dirs_exist_ok=True)
    (place / "moved" / "run.json").write_text(NESTED)
    done = command("resume", "moved", "stopped", "nowhere", "finished", "--json")
    assert done.code == 2
    told = {Path(each["run"]).name: each for each in json.loads(done.out)["runs"]}
    outcomes = {name: each["outcome"] for name, each in told.items()}
    assert outcomes == {
        "moved": "failed", "nowhere": "failed", "stopped": "improved", "finished": "improved"
    }  # fmt: skip
    complaints = [line for line in done.err.splitlines() if line.startswith("kernelblaster: ")]
    assert len(complaints) == 2 and "moved" in complaints[0] and "nowhere" in complaints[1]


BASES: dict[str, tuple[Damage, str]] = {
    "nested": (written("kb.json", NESTED), "kb.json is damaged"),
    "no text": (written("kb.json", b"\xff"), "kb.json is damaged"),
    "a list": (written("kb.json", "[]"), "another program"),
    "a folder": (folder_for_file("kb.json"), "a folder"),
    "a link to nowhere": (to_nowhere("kb.json"), "kb.json cannot be read"),
    "no evidence": (written("evidence.sqlite", b"junk" * 4000), "evidence.sqlite"),
    "evidence nowhere": (to_nowhere("evidence.sqlite"), "evidence.sqlite"),
} | {
    f"{column} of {kind}": (
        sql("evidence.sqlite", f"UPDATE entries SET {column} = {value}"), "evidence.sqlite"
    )
    for column, kind, value in (
        ("kind", "no text", "rowid || x'ff00'"),
        ("id", "no text", "x'ff00' || rowid"),
        ("id", "bytes", "CAST(rowid AS BLOB)"),
        ("body", "no text", "x'ff00'"),
        ("body", "nested", f"'{'[' * 50_000}'"),
        ("body", "another record", "'{}'"),
        ("body", "a short signature",
         "json_set(body, '$.signature_before', json('[0.5]'), '$.centroid', json('[0.5]'))"),
    )
}  # fmt: skip


def test_a_knowledge_base_whose_lock_is_a_folder_is_read_and_not_written_to(
    place: Path, command: Any, tmp_path: Path
) -> None:
    folder_for_file("index.lock")(place / "kb")
    assert command("kb", "show", "--kb", place / "kb").code == 0
    done = command("optimize", "text.py", "--kb", place / "kb", "--run", tmp_path / "run")
    assert_one_line(done, "index.lock")


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("said", [("kb", "show"), ("kb", "stats"), ("optimize", "text.py")])
def test_a_knowledge_base(
    place: Path, command: Any, name: str, said: tuple[str, str], tmp_path: Path
) -> None:
    damage, words = BASES[name]
    damage(place / "kb")
    run = ("--run", tmp_path / "run") if said[0] == "optimize" else ()
    done = command(*said, "--kb", place / "kb", *run)
    assert_one_line(done, words)


def test_a_knowledge_base_with_changed_entries_is_not_taken_over(
    place: Path, command: Any
) -> None:
    assert command("kb", "merge", place / "kb", "--kb", place / "ours").code == 0
    sql("evidence.sqlite", "UPDATE entries SET body = json_set(body, '$.log_gain', 9.0) "
        "WHERE kind = 'evidence'")(place / "kb")  # fmt: skip
    done = command("kb", "merge", place / "kb", "--kb", place / "theirs")
    assert_one_line(done, "is damaged", "nothing was taken over")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (sql("evidence.sqlite", "INSERT OR REPLACE INTO sources VALUES ('ab12', 'text')"),
         "the source ab12 is damaged"),
        (sql("evidence.sqlite", "UPDATE entries SET body = 'garbage' WHERE kind = 'update'"),
         "names no run and iteration"),
        (lambda base: (base / "evidence.sqlite").unlink(), "holds no evidence.sqlite"),
    ],
)  # fmt: skip
def test_a_knowledge_base_that_is_taken_over_is_whole(
    place: Path, command: Any, damage: Damage, words: str
) -> None:
    damage(place / "kb")
    assert_one_line(command("kb", "merge", place / "kb", "--kb", place / "theirs"), words)


@pytest.mark.parametrize("name", ["nested", "a link to nowhere", "body of no text"])
def test_a_knowledge_base_that_a_run_goes_on_with(place: Path, command: Any, name: str) -> None:
    damage, words = BASES[name]
    damage(place / "kb")
    assert_one_line(command("resume", "stopped"), words)


@pytest.mark.parametrize("damage", [to_nowhere("chroma"), written("chroma", "")])
def test_an_index_that_cannot_lie_where_it_should(
    place: Path, command: Any, damage: Damage
) -> None:
    shutil.rmtree(place / "kb" / "chroma", ignore_errors=True)
    (place / "kb" / "chroma").write_text("")
    damage(place / "kb")
    assert_one_line(command("kb", "reindex", "--kb", "kb"), "chroma", "move it away")


def test_a_knowledge_base_behind_a_link_to_nowhere(place: Path, command: Any) -> None:
    (place / "link").unlink(missing_ok=True)
    (place / "link").symlink_to("/nowhere/at/all")
    assert_one_line(command("kb", "show", "--kb", "link"), "link", "--kb")


def test_whole_stores_are_read(place: Path) -> None:
    with RunStore(place / "finished" / "run.sqlite") as store:
        assert store.replay.steps() and store.fastest()
    with KnowledgeBase.open(place / "kb", knowledge_seed()) as knowledge:
        assert knowledge.stats()["evidence"] > 0


@pytest.mark.parametrize("kind", [RunPlan, Settings])
def test_every_integer_of_a_plan_fits_a_checkpoint(kind: type[BaseModel]) -> None:
    def integers(part: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(part, dict):
            if part.get("type") == "integer":
                yield where, part
            for name, inner in part.items():
                yield from integers(inner, f"{where}.{name}")
        elif isinstance(part, list):
            for inner in part:
                yield from integers(inner, where)

    found = dict(integers(kind.model_json_schema(), kind.__name__))
    assert len(found) > 8
    for where, schema in found.items():
        assert schema.keys() & {"maximum", "exclusiveMaximum"}, f"{where}: use Integer"


NUMBERS = {
    "iterations": "1e30", "seed": str(10**30), "steps": str(10**30), "rollouts": "-1",
    "max_tokens": str(10**30), "repairs": str(10**30), "reasks": str(10**30),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("by", ["flag", "environment", "file"])
def test_numbers_beyond_all_measure(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch, name: str, by: str
) -> None:
    monkeypatch.chdir(tmp_path)
    graph_support.install(monkeypatch.setattr)
    flags: tuple[str, ...] = ()
    if by == "flag":
        flags = (f"--{name.replace('_', '-')}", NUMBERS[name])
    elif by == "environment":
        monkeypatch.setenv(f"KERNELBLASTER_{name.upper()}", NUMBERS[name])
    else:
        Path("kernelblaster.env").write_text(f"KERNELBLASTER_{name.upper()}={NUMBERS[name]}\n")
    done = command("optimize", "text.py", *flags, "--run", "run")
    assert done.code == 2 and "Traceback" not in done.err and not Path("run").exists()
    assert name.replace("_", "-") in done.err
