"""What every record is: frozen, of known fields alone, each with its sentence."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of every record: frozen, no unknown fields, field docstrings as descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""One that a database and a checkpoint can hold."""
