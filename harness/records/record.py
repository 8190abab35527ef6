"""What every record is: frozen, of known fields alone, each with its sentence."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Record(BaseModel):
    """Base of every record: frozen, no unknown fields, field docstrings as descriptions.

    These are read where a schema is asked for: pydantic's `use_attribute_docstrings` reads those of
    every record at import, a sixth of the time in which a command starts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def sentences(cls) -> dict[str, str]:
        """Return what stands below each field, inherited ones too."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Record):
                found |= sentences_below(base)
        return found

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema with `sentences` as descriptions."""
        schema = handler(core_schema)
        cls.describe(handler.resolve_ref_schema(schema))
        return schema

    @classmethod
    def describe(cls, schema: JsonSchemaValue) -> None:
        """Put `sentences` where a schema of this record's fields describes them."""
        properties = schema.get("properties", {})
        for name, words in cls.sentences().items():
            if name in properties:
                properties[name].setdefault("description", words)


@functools.cache
def sentences_below(kind: type) -> dict[str, str]:
    """Return the strings below the annotated names of a class; none where its source is not there.

    Not to be changed: it is kept.
    """
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # No class of a file; a program without its sources.
        return {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for field, below in zip(lines, lines[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
    return found


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""One that a database and a checkpoint can hold."""
