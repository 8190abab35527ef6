"""The group of all commands: whoever stops one is told so, wherever it stood."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup


class Commands(TyperGroup):
    """Commands as typer runs them, but that Ctrl-C before they handle it leaves a line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command that was named. Raises Exit with code 130 where Ctrl-C ends it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write("kernelblaster: stopped\n")
            raise typer.Exit(130) from None
