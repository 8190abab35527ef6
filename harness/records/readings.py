"""How a reference is read, beyond what its file says."""

from __future__ import annotations

from typing import Literal

from .record import Record

Mode = Literal["file", "eval", "train"]
Precision = Literal["file", "fp16", "bf16", "fp32"]


class Reading(Record):
    """How a reference is read: what is asked of it that its file does not say."""

    mode: Mode = "file"
    """Whether the model is set to evaluate or to train; by default as the file leaves it."""
    dtype: Precision = "file"
    """Type of its floating inputs, parameters and buffers; by default as the file has them."""
    allow_degenerate: bool = False
    """Whether a task is gone on with whose answer is known without computing anything."""


AS_WRITTEN = Reading()
"""Nothing is asked of a reference that its file does not say."""
