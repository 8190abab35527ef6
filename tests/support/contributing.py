"""The blocks of CONTRIBUTING.md: files to add, diffs to apply, entry points to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from places import ROOT

_BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

BLOCKS: dict[str, tuple[str, str]] = {
    name: (kind, text)
    for kind, name, text in _BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
}
"""By file: kind (a language, or diff) and text."""


def text(name: str) -> str:
    """Return the block with the text of a file."""
    return BLOCKS[name][1]


def patched(name: str, before: str) -> str:
    """Return a file's text with its diff applied; each hunk stands there exactly once."""
    kind, diff = BLOCKS[name]
    assert kind == "diff"
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        assert all(line[0] in " +-" for line in lines), hunk
        old = "".join(line[1:] for line in lines if line[0] != "+")
        new = "".join(line[1:] for line in lines if line[0] != "-")
        assert before.count(old) == 1, f"{name} holds this {before.count(old)} times:\n{old}"
        before = before.replace(old, new)
    return before


def install(
    folder: Path, name: str, module: str | None = None, entry: str | None = None
) -> None:
    """Lay the package of a block in a folder, as an installer would.

    Args:
        folder: a folder on the path of modules.
        name: NAME.py and NAME.toml are its blocks.
        module: text of the module in the block's place.
        entry: what the entry point names, in place of what the block says.
    """
    (folder / f"{name}.py").write_text(module or text(f"{name}.py"))
    groups = tomllib.loads(text(f"{name}.toml"))["project"]["entry-points"]
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{key} = {entry or value}" for key, value in entries.items()]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
