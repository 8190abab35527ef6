"""fast_math: short sequences of the special function unit; verification holds the tolerance."""

from __future__ import annotations

import re

from tree_sitter import Node

from ...harness.records.tasks import Task
from ..rewriting.kernels.helpers import anchor
from ..rewriting.records import Inapplicable, Kernels, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import (
    Kernel,
    Source,
    declarations,
    descendants,
    opened,
    operator,
    text_of,
    uses,
)
from .conditions import AtHand
from .technique import Technique

_CALLS = {
    "expf": "__expf", "logf": "__logf", "sinf": "__sinf", "cosf": "__cosf", "powf": "__powf",
    "log2f": "__log2f", "exp10f": "__exp10f", "tanhf": "fast_tanh",
}  # fmt: skip
_TANH = """\
// Hyperbolic tangent from one exponential: right at both ends, where it is infinite or zero.
__device__ __forceinline__ float fast_tanh(float value) {
    return 1.0f - __fdividef(2.0f, __expf(2.0f * value) + 1.0f);
}

"""
_FLOAT_CALL = re.compile(
    r"(__)?(expf?|logf?|sqrtf|rsqrtf|fabsf|fmaxf|fminf|tanhf?|erff|powf|sinf|cosf|log1pf|expm1f|"
    r"fdividef|fast_tanh|half2float|bfloat162float|fmaf|ldg)$"
)
_DIVIDES = re.compile(r"\df\s*/|[\])]\s*/\s*(?![A-Z][A-Z0-9_]*\b)[A-Za-z(]")
"""A division of floating-point values, as far as the text shows it: CAPITALS are sizes."""


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="fast_math",
        moves=("-alu",),
        description=(
            "Replace slow exact functions by the special-function unit's approximations (__expf, "
            "__fdividef, rsqrtf, tanh.approx)."
        ),
        applies_when=(
            "The special-function pipe or issue slots are the limit, and expf, division, tanhf, "
            "powf or sqrtf dominate the arithmetic; fp32 tolerance 1e-4 leaves room."
        ),
        avoid_when=(
            "Memory is the limit (nothing is gained), arguments are large (error of __expf and "
            "__sinf grows with magnitude), or the tolerance is tight."
        ),
        side_effects=(
            "Lower accuracy: a few units in the last place, more for large arguments. Verification "
            "decides."
        ),
        notes=(
            "Change the functions in the source instead of using -use_fast_math, so that denormals "
            "and other divisions keep their meaning. x / c for a constant c: multiply by its "
            "reciprocal. 1/sqrtf(v): rsqrtf(v)."
        ),
        sources=('CUDA C++ Programming Guide, "Intrinsic Functions"',),
        change=_apply,
        unfit=_no_slow_functions,
    )


def _no_slow_functions(at_hand: AtHand) -> str | None:
    found = re.search(r"\b(exp|log|tanh|pow|sqrt|sin|cos|erf)\w*\s*\(", at_hand.source)
    return None if found or _DIVIDES.search(at_hand.source) else "it calls no slow function"


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
    parsed = Source(source)
    changed: dict[str, None] = {}
    for kernel in parsed.kernels():
        writer = _Writer(kernel)
        text = writer.text(kernel.body)
        if writer.changed:
            parsed.replace(kernel.body, text)
            changed.update(writer.changed)
    if not changed:
        return Inapplicable(reason="no call or division has a fast form")
    if "fast_tanh" in changed and not uses(source, "fast_tanh"):
        parsed.cut(anchor(parsed), anchor(parsed), _TANH)
    return Rewritten(source=parsed.result(), note=f"fast forms: {', '.join(changed)}")


class _Writer:
    """Writes a kernel's body again with fast calls in it."""

    def __init__(self, kernel: Kernel) -> None:
        self.changed: dict[str, None] = {}
        self._pointers = {p.name for p in kernel.parameters if p.is_pointer and "float" in p.type}
        self._floats = {p.name for p in kernel.parameters if p.type.split()[-1:] == ["float"]}
        for node in descendants(kernel.body, "declaration"):
            text = text_of(node)
            for item in declarations(node):
                if re.search(r"\bfloat\b", item.type):
                    (self._pointers if item.is_pointer else self._floats).add(item.name)
                elif "load_pack" in text:
                    self._pointers.add(item.name)
            for declared in reversed(re.split(r"\bfloat\b", text)[1:]):
                array = re.search(r"\b(\w+)\s*\[", re.split("[=;]", declared, maxsplit=1)[0])
                if array is not None:
                    self._pointers.add(array[1])
                    break
            pack = re.match(r"Pack<.*>\s+(\w+)", text)
            if pack is not None:
                self._pointers.add(pack[1])

    def text(self, node: Node) -> str:
        """Return the text of a node with every fast form in it."""
        if node.type == "call_expression":
            fast = self._call(node)
            if fast is not None:
                return fast
        if node.type == "binary_expression" and operator(node) == "/":
            fast = self._division(node)
            if fast is not None:
                return fast
        if node.type == "assignment_expression" and operator(node) == "/=":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None and self._is_float(left):
                self.changed["__fdividef"] = None
                return f"{text_of(left)} = __fdividef({text_of(left)}, {self.text(right)})"
        return self._rebuilt(node)

    def _rebuilt(self, node: Node) -> str:
        if not node.children:
            return text_of(node)
        data, base = node.text or b"", node.start_byte
        parts, last = [], base
        for child in node.children:
            parts.append(data[last - base : child.start_byte - base].decode())
            parts.append(self.text(child))
            last = child.end_byte
        return "".join(parts) + data[last - base :].decode()

    def _call(self, node: Node) -> str | None:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return None
        fast = _CALLS.get(text_of(function))
        if fast is None:
            return None
        self.changed[fast] = None
        return f"{fast}{self.text(arguments)}"

    def _division(self, node: Node) -> str | None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return None
        inner = opened(right)
        root = inner.child_by_field_name("function")
        if root is not None and text_of(root) == "sqrtf" and text_of(left) in ("1.0f", "1.f", "1"):
            arguments = inner.child_by_field_name("arguments")
            assert arguments is not None
            self.changed["rsqrtf"] = None
            return f"rsqrtf{self.text(arguments)}"
        if not (self._is_float(left) or self._is_float(right)):
            return None
        self.changed["__fdividef"] = None
        # a left-hand product or quotient binds as one operand
        return f"__fdividef({self.text(left)}, {self.text(opened(right))})"

    def _is_float(self, node: Node) -> bool:
        node = opened(node) if node.type == "parenthesized_expression" else node
        text = text_of(node)
        if node.type == "number_literal":
            return "." in text or text.lower().endswith("f") and not text.startswith("0x")
        if node.type == "identifier":
            return text in self._floats
        if node.type == "subscript_expression":
            name = re.match(r"\w+", text)
            return name is not None and name[0] in self._pointers
        if node.type == "call_expression":
            function = node.child_by_field_name("function")
            return function is not None and (
                _FLOAT_CALL.match(text_of(function)) is not None
                or text_of(function) == "static_cast<float>"
            )
        if node.type == "cast_expression":
            return text.replace(" ", "").startswith("(float)")
        if node.type in ("binary_expression", "unary_expression", "conditional_expression"):
            return any(self._is_float(child) for child in node.named_children[-2:])
        return False
