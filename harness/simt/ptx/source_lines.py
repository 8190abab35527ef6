"""Follows the .loc directives of PTX: which line of the source an instruction comes from.

They are for messages alone. Inline assembly may hold some of its own: nothing is judged by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...vetting.ptx_tokens import Token

_Place = tuple[int, int, int]


class SourceLines:
    """Where the last .loc says that the text stands."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        """Read the names of the files, which stand behind the functions."""
        sources = [
            int(tokens[at + 1].text)
            for at, token in enumerate(tokens[:-2])
            if token.text == ".file" and tokens[at + 1].text.isdigit()
            and tokens[at + 2].text.endswith('.cu"')
        ]
        self._source = min(sources, default=1)
        self._call_sites: dict[_Place, _Place] = {}
        self.outermost: int | None = None
        """1-based line of the source file, at the outermost call site of inlined code."""
        self.innermost: int | None = None
        """The same at the innermost place in the source file."""

    def forget(self) -> None:
        """Begin another function."""
        self.outermost = self.innermost = None

    def go_to(self, location: Sequence[str]) -> None:
        """Take the words of a .loc directive."""
        numbers = [int(word) for word in location if word.isdigit()]
        here = (numbers[0], numbers[1], numbers[2])
        if "inlined_at" in location:
            self._call_sites[here] = (numbers[-3], numbers[-2], numbers[-1])
        else:
            self._call_sites.pop(here, None)
        # Inlining nests: the call site may itself have been inlined, as an earlier .loc says.
        self.innermost = None
        for _ in range(64):
            if self.innermost is None and here[0] == self._source:
                self.innermost = here[1] or None
            if here not in self._call_sites:
                break
            here = self._call_sites[here]
        self.outermost = here[1] or None if here[0] == self._source else None
