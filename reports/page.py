"""A report as one HTML file that needs nothing else: no network, no server, no other file.

Texts of models, tasks and sources are escaped wherever they stand, and the page's own policy lets
no script run but the two that are written here. Plotly draws the figures: its bundle comes with the
Python package of that name and lies in the page compressed, a third of its size; a page without a
figure leaves it out.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import resources, util
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..harness.errors import UserError
from ..harness.records.outcomes import outcome_in_words
from . import words
from .diffs import diff_of
from .plots import Plot

TEMPLATES = "templates"


def render_page(
    template: str, title: str, plots: Sequence[Plot], *, claims: str = "", **context: Any
) -> str:
    """Return the whole file.

    Args:
        template: name of the page's body in `templates/`.
        title: of the page.
        plots: those that the body shows with `figure(plot)`, wherever they stand.
        claims: what `rerun` measures again from the page, as `bench.claims` embeds it; "" for none.
        context: what the body tells.

    Raises:
        UserError: plotly is not installed whole.
    """
    script = _text("script.js")
    bundle, packed = _plotly() if plots else (b"", "")
    figures = {
        plot.id: {"data": plot.data, "layout": plot.layout, "height": plot.height}
        for plot in plots
    }
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src {_allowed(script.encode())} {_allowed(bundle)}; base-uri 'none'; "
        "form-action 'none'"
    )
    return environment().get_template(template).render(
        title=title,
        policy=policy,
        style=Markup(_text("style.css")),
        script=Markup(script),
        figures=Markup(_embedded(figures)),
        claims=Markup(claims),
        plotly=Markup(packed),
        **context,
    )


@functools.cache
def environment() -> Environment:
    """Return where pages are rendered: everything is escaped, what is missing is an error."""
    made = Environment(
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    filters: tuple[Callable[..., str], ...] = (
        words.microseconds, words.gain, words.log_gain, words.count, words.counted, words.figure,
        words.share, words.money, words.seconds, words.parameters, words.plain, outcome_in_words,
    )  # fmt: skip
    made.filters |= {each.__name__: each for each in filters}
    made.globals |= {"diff_of": diff_of, "NONE": words.NONE}
    return made


def _template(name: str) -> str | None:
    file = resources.files(__package__).joinpath(TEMPLATES, name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(TEMPLATES, name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """Return JSON that can stand inside a script element, whatever its texts say."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@functools.cache
def _plotly() -> tuple[bytes, str]:
    """Return plotly's script, and the same as it lies in a page: base64 of its gzip.

    Found without importing the Python package around it.
    """
    found = util.find_spec("plotly")
    path = Path(found.origin).parent / "package_data" / "plotly.min.js" if (
        found and found.origin) else None  # fmt: skip
    if path is None or not path.is_file():
        raise UserError("plotly, which draws a report's figures, is missing: pip install plotly")
    script = path.read_bytes()
    return script, base64.b64encode(gzip.compress(script, mtime=0)).decode()


def _allowed(script: bytes) -> str:
    """Return what of a content security policy allows this very script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
