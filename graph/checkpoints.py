"""A run's checkpoints: only this project's records come back from them, and only as written."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from ..harness.errors import UserError
from ..harness.records.rooms import modules_of
from ..memory.database import explained
from ..memory.run.directory import CHECKPOINTS_FILE
from ..nodes import records as node_records

PACKED = "+zlib"
WORTH_PACKING = 1 << 10
"""Bytes of a value below which packing saves less than it costs."""
FAST = 1
"""zlib's quickest level: a step packs thirty values."""
_SMALL = (bool, int, float, type(None))
_APART = "values_apart"
"""Key of a checkpoint under which the channels stand whose values are in rows of their own."""
LARGEST = 1 << 28
"""Bytes of a value: what says that it is more was not written here."""


@contextmanager
def open_checkpointer(directory: Path) -> Iterator[Checkpoints]:
    """Open the run's checkpoints.

    Raises:
        UserError: the file cannot be written, or is damaged.
    """
    path = directory / CHECKPOINTS_FILE
    try:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            # As in the run's other databases: a killed process loses nothing, a power cut the last
            # steps, which are taken again from what is stored.
            connection.execute("PRAGMA synchronous=NORMAL")
            yield Checkpoints(connection)
    except sqlite3.OperationalError as error:
        raise UserError(explained(path, str(error))) from error
    except (sqlite3.DatabaseError, UnreadableCheckpoint) as error:
        raise UserError(f"{path} is damaged: {error}; start a new run") from error


class UnreadableCheckpoint(Exception):
    """A checkpoint is not what was written."""


class Checkpoints(SqliteSaver):
    """Writes where it is called: a row takes less time than a thread takes to be told of it.

    What a channel holds stands in a row of its own, under its version: a step changes few channels,
    and the plan, which is most of what a rollout holds, none.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Prepare it; the tables are made at first use."""
        super().__init__(connection, serde=checkpoint_serializer())
        self._stored: dict[tuple[str, str, str], str] = {}
        """The version of each channel that was last stored, by thread, namespace and channel."""

    def setup(self) -> None:
        """Make the tables, where they are not there."""
        if not self.is_setup:
            self.conn.execute(
                "CREATE TABLE IF NOT EXISTS channel_values (thread_id TEXT NOT NULL, "
                "checkpoint_ns TEXT NOT NULL, channel TEXT NOT NULL, version TEXT NOT NULL, "
                "type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, channel, version))"
            )
        super().setup()

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Save a checkpoint, and of its channels what is not saved yet."""
        place = str(config["configurable"]["thread_id"]), config["configurable"]["checkpoint_ns"]
        versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
        apart = {
            name: str(versions[name]) for name, value in values.items()
            if name in versions and not isinstance(value, _SMALL)
        }  # fmt: skip
        new = {
            name: version for name, version in apart.items()
            if self._stored.get((*place, name)) != version
        }  # fmt: skip
        rows = [
            (*place, name, version, *self.serde.dumps_typed([name, version, values[name]]))
            for name, version in new.items()
        ]
        inline = {name: value for name, value in values.items() if name not in apart}
        slim = {**checkpoint, "channel_values": inline, _APART: sorted(apart)}
        try:  # One transaction, which ends with the checkpoint.
            with self.cursor(transaction=False) as cursor:
                cursor.executemany(
                    "INSERT OR REPLACE INTO channel_values VALUES (?, ?, ?, ?, ?, ?)", rows
                )
            saved = super().put(config, cast(Checkpoint, slim), metadata, new_versions)
        except BaseException:
            with self.lock:
                self.conn.rollback()
            raise
        self._stored |= {(*place, name): version for name, version in new.items()}
        return saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with all that its channels hold; None where there is none."""
        found = super().get_tuple(config)
        return None if found is None else self._whole(found)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        """Yield checkpoints, the newest first."""
        yield from map(
            self._whole, list(super().list(config, filter=filter, before=before, limit=limit))
        )

    def delete_thread(self, thread_id: str) -> None:
        """Delete all that is kept of a thread."""
        super().delete_thread(thread_id)
        with self.cursor() as cursor:
            cursor.execute("DELETE FROM channel_values WHERE thread_id = ?", (str(thread_id),))
        self._stored.clear()

    def _whole(self, found: CheckpointTuple) -> CheckpointTuple:
        """Return a checkpoint with its values. Raises UnreadableCheckpoint."""
        kept = cast(dict[str, Any], dict(found.checkpoint))
        place = found.config["configurable"]
        values = dict(kept["channel_values"])
        namespace = place.get("checkpoint_ns", "")
        for name in kept.pop(_APART, ()):  # Older checkpoints have all in one row.
            version = str(kept["channel_versions"][name])
            with self.cursor(transaction=False) as cursor:
                row = cursor.execute(
                    "SELECT type, value FROM channel_values WHERE thread_id = ? "
                    "AND checkpoint_ns = ? AND channel = ? AND version = ?",
                    (str(place["thread_id"]), namespace, name, version),
                ).fetchone()
            if row is None:
                raise UnreadableCheckpoint(f"the value of {name} is not there")
            *said, values[name] = self.serde.loads_typed(row)
            if said != [name, version]:
                raise UnreadableCheckpoint(f"the value of {name} is another's")
        return found._replace(checkpoint=cast(Checkpoint, kept | {"channel_values": values}))

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        try:
            found = self.get_tuple(config)
            if found is not None:
                _require_its_own(found)
            return found
        except (sqlite3.Error, UnreadableCheckpoint):
            raise
        # A row is decoded here and nothing else is done: no fault of a node is hidden.
        except Exception as error:
            raise UnreadableCheckpoint(f"{type(error).__name__}: {error}") from error

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str,
        task_path: str = "",
    ) -> None:  # fmt: skip
        self.put_writes(config, writes, task_id, task_path)


def _require_its_own(found: CheckpointTuple) -> None:
    """Refuse a row whose columns, which have no sum, are not those of its checkpoint."""
    if found.config["configurable"]["checkpoint_id"] != found.checkpoint["id"]:
        raise UnreadableCheckpoint("a checkpoint stands under another's id")
    if "step" not in found.metadata:
        raise UnreadableCheckpoint("a checkpoint does not say which step it is of")


class SummedSerializer(JsonPlusSerializer):
    """Keeps a sum beside each value, so that no decoder sees what the disk made of it.

    A decoder takes many damaged bytes for another value, and a run would go on with it. Larger
    values are packed: rollouts that are sent off hold the same plan many times.
    """

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a value as bytes, and their kind with their sum."""
        kind, data = super().dumps_typed(obj)
        if len(data) >= WORTH_PACKING:
            kind, data = f"{kind}{PACKED}", zlib.compress(data, FAST)
        return f"{kind} {zlib.crc32(data):08x}", data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of bytes that are what was written.

        Raises:
            UnreadableCheckpoint: they are not, or were written by another version.
        """
        kind, _, said = data[0].partition(" ")
        if said != f"{zlib.crc32(data[1]):08x}":
            raise UnreadableCheckpoint("its sum does not match, or another version wrote it")
        if not kind.endswith(PACKED):
            return super().loads_typed((kind, data[1]))
        unpacking = zlib.decompressobj()
        whole = unpacking.decompress(data[1], LARGEST)
        if not unpacking.eof:
            raise UnreadableCheckpoint(f"it says that it is over {LARGEST} bytes large")
        return super().loads_typed((kind.removesuffix(PACKED), whole))


def checkpoint_serializer() -> JsonPlusSerializer:
    """Return a serializer that refuses every type but the records this project checkpoints."""
    return SummedSerializer(allowed_msgpack_modules=checkpoint_types())


def checkpoint_types() -> list[tuple[str, ...]]:
    """Return the records that checkpoints hold, as (module, name).

    A parent's saver gives records back as records where its serializer allows them: with
    LANGGRAPH_STRICT_MSGPACK=true only what is listed is read as more than plain values.

    Example:
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        allowed = kernelblaster.checkpoint_types()
        saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=allowed))
    """
    from ..harness import records as harness_records
    from ..memory import records as memory_records
    from ..tools.models import records as model_records

    kinds = _types_of(model_records)
    older: list[tuple[str, ...]] = []
    for room in (harness_records, memory_records, node_records):
        for module in modules_of(room.__name__, room.__path__):
            found = _types_of(module)
            kinds += found
            # Older checkpoints name the room alone.
            older += [(room.__name__, kind.__name__) for kind in found]
    # What a node raised is kept too, as the words that a server tells of it.
    errors: list[type[Any]] = [UserError, *UserError.__subclasses__()]
    return [*((kind.__module__, kind.__name__) for kind in (*kinds, *errors)), *older]


def _types_of(module: ModuleType) -> list[type[Any]]:
    """Return the classes that a module defines itself."""
    named = vars(module).values()
    return [
        kind for kind in named if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
