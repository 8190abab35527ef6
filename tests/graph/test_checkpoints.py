"""Checkpoints: what comes back from them, and that they do not grow with what was done."""

from __future__ import annotations

import base64
import importlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graph_support
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from text_runs import run

from kernelblaster.graph.checkpoints import (
    PACKED,
    WORTH_PACKING,
    UnreadableCheckpoint,
    checkpoint_serializer,
    checkpoint_types,
    open_checkpointer,
)
from kernelblaster.graph.session import THREAD
from kernelblaster.nodes.records.kernels import KernelPoint
from kernelblaster.nodes.records.observations import StateChoice
from kernelblaster.nodes.records.trajectories import Trajectory
from kernelblaster.tools.techniques.catalogue import knowledge_seed

EARLIER = Path(__file__).parents[1] / "data/checkpoints/before_references.json"


@dataclass(frozen=True)
class Again(graph_support.TextRewrite):
    """Applies however often it was applied."""

    def apply(self, source: str, task: Any, parameters: Any = None, kernels: Any = ()) -> Any:
        told = source.replace(f"did: {self.technique}\n", "did it before\n")
        return super().apply(told, task, parameters)


def outer_checkpoints(directory: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return bytes and state of each checkpoint of the outer graph, in order."""
    config: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
    with open_checkpointer(directory) as saver:
        found = [each.checkpoint for each in saver.list(config)]
        return [
            (len(saver.serde.dumps_typed(each)[1]), each["channel_values"])
            for each in reversed(found)
        ]


def test_what_did_not_change_is_stored_once_and_older_checkpoints_are_read(tmp_path: Path) -> None:
    all_of: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": "a|b"}}
    place, plan = all_of, {"plan": "p" * 5000}
    with open_checkpointer(tmp_path) as saver:
        for step, words in enumerate(("one", "two", "three"), 1):
            values = {"plan": plan, "said": [words], "step": step, "gone": None}
            same = dict.fromkeys(("plan", "gone", "none"), "1")
            put: Any = empty_checkpoint() | {
                "id": f"1f0-{step}", "channel_values": values,
                "channel_versions": same | {"said": str(step), "step": str(step)},
            }  # fmt: skip
            place = saver.put(place, put, {"step": step}, {})
        assert [each.checkpoint["channel_values"]["said"] for each in saver.list(all_of)] == [
            ["three"], ["two"], ["one"]
        ]  # fmt: skip
    with open_checkpointer(tmp_path) as saver:
        found = saver.get_tuple(place)
        assert found is not None and found.checkpoint == put
        saver.put(place, put, {"step": 4}, {})  # Anew: this saver does not know what is there.
        rows = saver.conn.execute("SELECT channel, version FROM channel_values").fetchall()
        assert sorted(rows) == [("plan", "1"), ("said", "1"), ("said", "2"), ("said", "3")]
        older: Any = {**put, "id": "1f0-5"}
        SqliteSaver.put(saver, place, older, {"step": 5}, {})
        found = saver.get_tuple(all_of)
        assert found is not None and found.checkpoint == older
        saver.delete_thread("1")
        assert not saver.conn.execute("SELECT * FROM channel_values").fetchall()


def test_checkpoints_do_not_grow_with_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrites = tuple(
        Again(each.technique, 0.95 if each.outcome == "passed" else each.factor, each.outcome)
        for each in graph_support.REWRITES
    )
    graph_support.install(monkeypatch.setattr, rewrites)
    result = run(tmp_path, iterations=5, rollouts=2, steps=2)
    assert len(result.steps) == 20 and len(result.path) > 5 and result.lessons
    checkpoints = outer_checkpoints(tmp_path / "run")
    largest = [
        max(size for size, state in checkpoints if state.get("iteration") == iteration)
        for iteration in range(1, 5)
    ]
    assert max(largest[2:]) < 1.3 * max(largest[:2]), largest
    final = checkpoints[-1][1]
    assert {each.iteration for each in final["trajectories"].values()} == {4}
    short = final["result"]
    assert (short.steps, short.lessons, short.path) == ((), (), result.path)


def test_checkpoints_of_an_earlier_version_come_back_as_records() -> None:
    """They held each trajectory's steps and passed kernels, and each kernel's timing and path."""
    stored = json.loads(EARLIER.read_text())
    serializer = checkpoint_serializer()
    values = {
        channel: serializer.loads_typed((kind, base64.b64decode(data)))
        for channel, (kind, data) in stored.items()
    }
    best = values["best"]
    assert isinstance(best, KernelPoint) and best.interval[0] <= best.microseconds
    assert best.depth > 0 and best.technique and best.provenance == "simulated"
    (trajectory,) = values["trajectories"].values()
    assert isinstance(trajectory, Trajectory) and isinstance(trajectory.best, KernelPoint)
    assert trajectory.best.microseconds > 0 and trajectory.ended


def test_a_record_is_found_by_its_module_and_by_its_room() -> None:
    """Older checkpoints name the room alone."""
    allowed = set(checkpoint_types())
    for module, name in allowed:
        kind = getattr(importlib.import_module(module), name)
        assert kind.__name__ == name and (kind.__module__, name) in allowed
    rooms = {"harness": "Timing", "memory": "Lesson", "nodes": "KernelPoint"}
    assert {(f"kernelblaster.{floor}.records", name) for floor, name in rooms.items()} <= allowed


def test_a_choice_that_says_how_much_a_kernel_is_in_each_state_comes_back() -> None:
    state = knowledge_seed().states[0]
    said = {"distance": 0.1, "discovered": False, "reason": "near", "author": "builtin"}
    earlier = {**said, "state": state.model_dump(), "weights": {state.id: 1.0}}
    assert StateChoice.model_validate(earlier) == StateChoice(state=state, **said)


@pytest.mark.parametrize("length", [0, WORTH_PACKING - 10, WORTH_PACKING, 100_000])
def test_values_of_any_size_come_back_packed_or_not(length: int) -> None:
    serializer = checkpoint_serializer()
    value = {"text": os.urandom(length // 2).hex()}
    kind, data = serializer.dumps_typed(value)
    assert (PACKED in kind) == (length >= WORTH_PACKING)
    assert serializer.loads_typed((kind, data)) == value
    with pytest.raises(UnreadableCheckpoint):
        serializer.loads_typed((kind, data[:-1]))


def test_a_value_that_unpacks_to_more_than_was_ever_written_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelblaster.graph.checkpoints.LARGEST", 1000)
    data = zlib.compress(bytes(1001))
    with pytest.raises(UnreadableCheckpoint, match="over 1000 bytes"):
        checkpoint_serializer().loads_typed((f"bytes{PACKED} {zlib.crc32(data):08x}", data))
