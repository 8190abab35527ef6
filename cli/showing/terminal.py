"""A terminal that texts of anybody's cannot steer: what models, tasks and files say is blanked."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ...harness.errors import printable


class Terminal(Console):
    """A console on which control characters inside texts are blank; its own are not."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is shown of something."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)
