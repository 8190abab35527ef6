"""Keep texts by the sha256 of their content, so that state and databases hold only references."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from ...harness.errors import UserError, unwritten
from ...harness.files import LARGEST_DOCUMENT_BYTES, read_regular, write_atomically


class ArtifactStore:
    """Files `DIRECTORY/ab/cdef...`, named by the sha256 of their bytes, written once.

    Safe under threads, processes and kill -9: a file appears whole, by rename, or not at all.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put_text(self, text: str) -> str:
        """Store a text and return the hexadecimal sha256 of its UTF-8 bytes.

        Raises:
            UserError: the disk is full or the directory is not writable.
        """
        data = text.encode()
        name = hashlib.sha256(data).hexdigest()
        target = self.path_of(name)
        if target.is_file():
            return name
        try:
            write_atomically(target, data)
        except OSError as error:
            words = unwritten(f"to the artifact directory {self.directory}", error)
            raise UserError(f"{words}, or give another --run directory") from error
        return name

    def get_text(self, name: str) -> str:
        """Return the text stored under a sha256.

        Raises:
            UserError: there is no such artifact, or its bytes are no longer what was stored.
        """
        path = self.path_of(name)
        try:
            data = read_regular(path, LARGEST_DOCUMENT_BYTES, "an artifact")
        except OSError as error:
            raise UserError(
                f"artifact {name[:12]} is missing from {self.directory}; "
                "the run directory is incomplete: restore it, or start a new run"
            ) from error
        if hashlib.sha256(data).hexdigest() != name:
            raise UserError(
                f"artifact {path} is damaged (its content does not match its name); "
                "delete it and start a new run"
            )
        return data.decode()

    def copy_to(self, directory: Path) -> None:
        """Give another store all texts of this one: as links where the file system has them.

        Raises:
            OSError: the disk is full or the directory is not writable.
        """
        for found in self.directory.glob("??/*"):
            target = directory / found.parent.name / found.name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(found, target)
            except OSError:
                shutil.copyfile(found, target)

    def names(self, beginning: str) -> list[str]:
        """Return the sha256 of the stored texts whose sha256 begins so (two digits or more)."""
        folder = self.directory / beginning[:2]
        return sorted(f"{folder.name}{found.name}" for found in folder.glob(f"{beginning[2:]}*"))

    def path_of(self, name: str) -> Path:
        """Return where the text of a sha256 lies, or would."""
        return self.directory / name[:2] / name[2:]
