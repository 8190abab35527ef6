"""Reads the functions that a generated file lacks out of a model's reply, and puts them in."""

from __future__ import annotations

import re

from ...tools.first_kernel.kernels.missing import Sketch
from ...tools.models.asking import MalformedReply
from ...tools.models.code_reply import CodeReply, holds_edits, read_code

_LAUNCH = re.compile(r"\bvoid\s+launch\s*\(")


def read_functions(text: str, rest: Sketch, failed: str | None) -> CodeReply:
    """Return the whole file of a reply that gives, or edits, what the sketch lacks.

    Args:
        failed: the file that edits change; None where there is none yet.

    Raises:
        MalformedReply: as `read_code`; or it touches what is generated.
    """
    reply = read_code(text, failed, functions=tuple(each.name for each in rest.missing))
    source = str(reply.source)
    if holds_edits(text):
        if not (source.startswith(rest.before) and source.endswith(rest.after)):
            raise MalformedReply("the edits change what is generated: edit your own functions only")
        return reply
    if _LAUNCH.search(source):
        raise MalformedReply("launch() is generated: give only the functions asked for")
    without = [each.scratch for each in rest.missing if each.scratch not in source]
    if without:
        raise MalformedReply(f"the file does not define {', '.join(without)}: 0 where none is used")
    return reply.model_copy(update={"source": rest.completed(source)})
