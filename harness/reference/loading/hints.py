"""What running or exporting a reference raises, in one line, and what to write instead.

The one place where that is known: `loading/model.py` asks it of what forward() raises, `exported/`
and `child.py` of what torch.export does.
"""

from __future__ import annotations

import os
import re
import traceback

MOST_WORDS = 200
"""Characters of what an error says itself."""
MOST_LOOKED_AT = 300
"""Characters of that in which is looked for what it is about."""

_ADDRESS = re.compile(r"<(?:[\w.<>]+\.)?([\w<>]+)(?: object)?(?: [\w.<>]+)? at 0x[0-9a-f]+>")
_HIGHER_ORDER = re.compile(r"HigherOrderOperator (\w+)")
_LINK = re.compile(r"(?:(?:Please )?[Ss]ee|at|,)?\s*https?://\S*")

_BY_VALUES = (
    "the course of forward() hangs on values of a tensor: use torch.where instead, or give what is "
    "a count or a length as a number in get_inputs(), in place of a tensor"
)
_NO_GRADIENTS = (
    "forward() is run without gradients: write the derivatives out as operations of their own"
)
_NESTED = "nested tensors are not read: compute with a padded tensor and a mask, or lengths"

_RAISED: tuple[tuple[str, str], ...] = (
    (
        r"HigherOrderOperator cond\b",
        "torch.cond is not read: compute both and choose with torch.where",
    ),
    (
        r"HigherOrderOperator flex_attention",
        "flex_attention is not read: give F.scaled_dot_product_attention what it adds to the "
        "scores as attn_mask",
    ),
    (
        r"HigherOrderOperator (?:scan|associative_scan|while_loop|map_impl|map)\b",
        "this operator is not read: write it as a loop in Python",
    ),
    (
        r"HigherOrderOperator",
        "operators that call functions are not read: write what they compute out in forward()",
    ),
    (
        r"at .*/autograd/__init__\.py|at .*/_functorch/eager_transforms\.py|"
        r"at .*/_tensor\.py:backward|does not require grad|_will_engine_execute_node",
        _NO_GRADIENTS,
    ),
    (r"at .*/torch/nested/|Nested(?:Tensor|Int)", _NESTED),
    (
        r"Sparse",
        "sparse tensors are not read: compute with what they consist of",
    ),
    (
        r"FakeTensor(?s:.)*at .*/modules/rnn\.py",
        "packed sequences are not read: run the padded tensor, and take the steps beyond each "
        "length out with a mask",
    ),
    (
        r"\.numpy\(\) is not supported|__array__",
        "what NumPy computes is not seen: compute with torch's own operations",
    ),
    (
        r"in output, which is not a known type",
        "let forward() return tensors, or lists, tuples and dictionaries of them",
    ),
    (
        r"ScriptModule|ScriptFunction|torch\.jit|TracedModule",
        "leave torch.jit out: what compiles a model changes no answer",
    ),
    (
        r"_ctc_loss",
        "ctc_loss is not read: write its recursion over the steps out with torch.logsumexp",
    ),
    (
        r"GuardOnDataDependentSymNode|DataDependentOutput|DynamicOutputShape|"
        r"must be tuple of ints, ?but got FakeTensor",
        _BY_VALUES,
    ),
)  # fmt: skip
"""(what is found in an error's kind, words, or the places that it came through: `at FILE:FUNCTION`;
what to do), the most particular first."""

_BY_VALUES_OF = {
    "bincount": "torch.zeros(N).scatter_add_(0, x, torch.ones(x.shape)) counts into as many as "
                "there may be",
    "repeat_interleave": "give the repeats as a number, or gather with indices that are an input",
}  # fmt: skip
"""Operators whose results' sizes hang on values, and what to write instead."""
_MASKED = (
    "work on all elements and take the others out with a mask, as torch.where and one_hot do"
)


def said(error: BaseException) -> str:
    """Return what an error says: in one line, without addresses, links and what was cut off."""
    words = " ".join(str(error).split())
    if isinstance(error, NotImplementedError) and (named := _HIGHER_ORDER.search(words)):
        return f"there is no rule for the operator {named[1]}, which calls functions"
    words = _LINK.sub("", _ADDRESS.sub(r"\1", words)).strip()
    if len(words) > MOST_WORDS:
        words = words[:MOST_WORDS].rpartition(" ")[0].rstrip(".,;: ") + " …"
    return words.rstrip(" .,;:")


def instead_of(error: BaseException) -> str:
    """Return what to write instead of what raised an error; empty where that is not known."""
    places = [
        f"at {os.path.normpath(frame.filename)}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    # Further on some messages list all kinds of tensors that there are.
    looked = "\n".join([f"{type(error).__name__}: {str(error)[:MOST_LOOKED_AT]}", *places])
    return next((what for pattern, what in _RAISED if re.search(pattern, looked)), "")


def instead_of_operator(operator: str) -> str:
    """Return what to write instead of an operator whose result's sizes hang on values."""
    parts = operator.split(".")
    return _BY_VALUES_OF.get(parts[1] if len(parts) > 1 else operator, _MASKED)
