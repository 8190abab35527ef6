"""What every reply with a form has in common: a pydantic model whose docstrings the model reads.

Text replies (code) are read by tools/models/code_reply.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model, model_validator

NAME = r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$"
"""snake_case."""


LONGEST_LINE = 800
"""Characters of one Line: what is longer is cut, for it is not worth a second call."""


def one_line(text: Any) -> Any:
    """Return text on one line, without control characters: it goes into prompts and terminals."""
    if not isinstance(text, str):
        return text
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(words) <= LONGEST_LINE:
        return words
    return words[: LONGEST_LINE - 4].rpartition(" ")[0] + " ..."


Line = Annotated[str, BeforeValidator(one_line)]


class Reply(BaseModel):
    """Base of every reply: docstrings as descriptions, fields that nobody asked for left aside.

    Asking again for a field too many would cost a whole prompt, and change nothing.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


Form = TypeVar("Form", bound=Reply)


def checked(form: type[Form], check: Callable[[Form], None]) -> type[Form]:
    """Return a form whose replies must also pass a check against what exists.

    `check` raises ValueError with the reason, which goes back to the model.
    """

    def checked_reply(reply: Form) -> Form:
        check(reply)
        return reply

    validator: Any = model_validator(mode="after")(checked_reply)
    return create_model(
        form.__name__,
        __base__=form,
        __doc__=form.__doc__,
        __validators__={"checked_reply": validator},
    )
