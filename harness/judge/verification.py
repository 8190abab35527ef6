"""Is an answer right? Outputs of a candidate against PyTorch's, element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..records.record import Record
from ..records.tasks import Task
from ..records.tensors import TensorSpec, Tolerance
from ..task.cases import Case, read_cases
from .reports import CaseReport

Array = NDArray[Any]

MOST_DIAGNOSTICS = 5

ODD_FLAG = "; a bool is the byte 0 or 1, and what reads another one as a number counts it so"
"""What is said of a flag that is another byte."""


class Mismatch(Record):
    """How one output differs from PyTorch's answer; the element is the first in row-major order."""

    tensor: str
    index: tuple[int, ...]
    expected: float
    got: float
    count: int
    """Elements outside the tolerance."""
    total: int
    largest_error: float
    """Largest absolute difference where both are finite."""
    region: tuple[tuple[int, int], ...]
    """First and last index of the differing elements along each axis."""
    flag: bool = False
    """Whether it is a byte that is a flag: then `got` is that byte."""

    @property
    def message(self) -> str:
        """One line that names the place, the values, and how much is wrong."""
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        text = (
            f"{self.tensor}{place}: expected {self.expected:.7g}, got {self.got:.7g}; "
            f"{self.count} of {self.total} elements differ"
        )
        if 1 < self.count < self.total:
            spans = ", ".join(f"{first}..{last}" for first, last in self.region)
            text += f", all within [{spans}]"
        if self.largest_error > 0:
            text += f", largest error {self.largest_error:.3g}"
        return text + (ODD_FLAG if self.flag and self.got > 1 else "")


def compare(got: bytes, expected: bytes, spec: TensorSpec, tolerance: Tolerance) -> Mismatch | None:
    """Compare raw little-endian row-major elements; None where they agree.

    Floating elements agree when |got - expected| <= absolute + relative * |expected|, when both are
    NaN, or both the same infinity; all others when equal, or as near; flags as bytes. As many as
    the tolerance's share may be a step off. Raises ValueError for wrong lengths.
    """
    actual, wanted = decode(got, spec), decode(expected, spec)
    wrong = ~agree(actual, wanted, tolerance)
    if tolerance.share and wrong.any():
        stepped = wrong & within_step(actual, wanted, tolerance)
        if stepped.sum() <= may_step(tolerance.share, wrong.size):
            wrong &= ~stepped
    if not wrong.any():
        return None
    places = numpy.argwhere(wrong)
    index = tuple(int(position) for position in places[0])
    low, high = places.min(axis=0), places.max(axis=0)
    return Mismatch(
        tensor=spec.name,
        index=index,
        expected=float(wanted[index]),
        got=number_at(actual, index),
        count=len(places),
        total=spec.numel,
        largest_error=_largest_difference(actual, wanted),
        region=tuple((int(a), int(b)) for a, b in zip(low, high, strict=True)),
        flag=spec.dtype == "bool",
    )


def check_outputs(
    task: Task,
    cases_dir: Path,
    outputs_dir: Path,
    reports: Iterable[CaseReport],
    cases: Sequence[Case] | None = None,
) -> StageResult:
    """Judge what a candidate that ran without a fault left in outputs_dir/<i>/out<k>.bin.

    All cases that are listed are judged, or those given. A case that the child does not report was
    not run and cannot pass. Facts of a pass: cases, kernel launches a call, largest error, and
    precision_ratio, the largest ratio of the candidate's error to PyTorch's own, both against
    double precision.
    """
    ran = {case.name: case for case in reports}
    found: list[Diagnostic] = []
    largest, ratio = 0.0, 0.0
    cases = read_cases(cases_dir) if cases is None else cases
    for case in cases:
        if case.name not in ran:
            found.append(_mismatch("it was not run", case))
            continue
        for output, (spec, tolerance) in enumerate(outputs_of(task, case)):
            name = f"{spec.name}.bin"
            expected = (cases_dir / case.directory / name).read_bytes()
            try:
                got = (outputs_dir / case.directory / name).read_bytes()
                mismatch = compare(got, expected, spec, tolerance) if tolerance else None
            except FileNotFoundError:
                found.append(_mismatch(f"{spec.name} was not written", case))
                continue
            except ValueError as error:
                found.append(_mismatch(str(error), case))
                continue
            if mismatch:
                found.append(_mismatch(mismatch.message, case))
                continue
            actual = decode(got, spec)
            largest = max(largest, _largest_difference(actual, decode(expected, spec)))
            exact = cases_dir / case.directory / f"{spec.name}.f64.bin"
            ratio = max(ratio, _precision_ratio(actual, exact, spec, case.own_errors[output]))
    if found:
        return StageResult(
            outcome=Outcome.WRONG_ANSWER,
            reason=found[0].message,
            diagnostics=tuple(found[:MOST_DIAGNOSTICS]),
        )
    return StageResult(
        outcome=Outcome.PASSED,
        facts={
            "cases": len(cases),
            "launches": max(case.launches for case in ran.values()),
            "max_abs_error": largest,
            "tolerance_absolute": task.tolerance.absolute,
            "tolerance_relative": task.tolerance.relative,
            "precision_ratio": ratio,
        },
    )


def decode(data: bytes, spec: TensorSpec) -> Array:
    """Return raw elements as an array of the tensor's shape; bfloat16 becomes float32.

    Raises ValueError where the length does not fit.
    """
    if len(data) != spec.nbytes:
        raise ValueError(f"{spec.name}: {len(data)} bytes instead of {spec.nbytes}")
    return decode_elements(data, spec.dtype).reshape(spec.shape)


def decode_elements(data: bytes, dtype: str) -> Array:
    """Return raw elements in a row; bfloat16 becomes float32, flags keep their bytes."""
    if dtype == "bfloat16":
        bits = numpy.frombuffer(data, "<u2").astype(numpy.uint32) << 16
        floats: Array = bits.view(numpy.float32)
        return floats
    plain: Array = numpy.frombuffer(data, numpy.dtype(dtype).newbyteorder("<"))
    return plain


@dataclass(frozen=True)
class Nearness:
    """A tolerance that each element has for itself."""

    absolute: NDArray[numpy.float64]
    relative: NDArray[numpy.float64]
    step: float = 0.0
    least_step: float = 0.0


def may_step(share: float, count: int) -> int:
    """Return how many of so many elements may be a step off."""
    return math.ceil(share * count - 1e-6)  # A count over a count, times that, is off by less.


def within_step(
    got: Array, wanted: Array, tolerance: Tolerance | Nearness
) -> NDArray[numpy.bool_]:
    """Say of each element that does not agree whether it is a step off, no more and no less."""
    a, b = got.astype(numpy.float64), wanted.astype(numpy.float64)
    with numpy.errstate(invalid="ignore", over="ignore"):
        near, off = tolerance.absolute + tolerance.relative * numpy.abs(b), numpy.abs(a - b)
        inside = (off >= tolerance.least_step - near) & (off <= tolerance.step + near)
        return numpy.asarray(inside & numpy.isfinite(b) & ~_odd_flags(got))


def number_at(values: Array, at: Any) -> float:
    """Return one element as a number; of flags, the byte."""
    return float(values.view(numpy.uint8)[at] if values.dtype == numpy.bool_ else values[at])


def _odd_flags(got: Array) -> NDArray[numpy.bool_]:
    """Say of each element whether it is a flag of another byte than 0 and 1."""
    if got.dtype != numpy.bool_:
        return numpy.zeros((), numpy.bool_)
    return numpy.asarray(got.view(numpy.uint8) > 1)


def agree(got: Array, wanted: Array, tolerance: Tolerance | Nearness) -> NDArray[numpy.bool_]:
    """Say of each element whether it agrees; see `compare`."""
    if wanted.dtype == numpy.bool_:  # PyTorch's flags are 0 and 1: 2 is neither.
        return numpy.asarray(got.view(numpy.uint8) == wanted.view(numpy.uint8))
    if wanted.dtype.kind != "f" and not numpy.any(tolerance.absolute):
        return numpy.asarray(got == wanted)
    a, b = got.astype(numpy.float64), wanted.astype(numpy.float64)
    with numpy.errstate(invalid="ignore", over="ignore"):
        near = numpy.abs(a - b) <= tolerance.absolute + tolerance.relative * numpy.abs(b)
    # An infinite expectation makes the tolerance infinite: only the same infinity agrees with it.
    both_finite = numpy.isfinite(a) & numpy.isfinite(b)
    return numpy.asarray((near & both_finite) | (a == b) | (numpy.isnan(a) & numpy.isnan(b)))


def least_own_error(dtype: str, largest: float) -> float:
    """Return what PyTorch's own error counts as at least: it is sometimes exactly right by luck.

    Half a unit in the last place of the largest element.
    """
    epsilon = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}.get(dtype, 2.0**-7)
    return 0.5 * epsilon * largest


def outputs_of(task: Task, case: Case) -> Iterator[tuple[TensorSpec, Tolerance | None]]:
    """Yield each output of a case with its tolerance; None for one that is not compared."""
    return zip(task.verify.of_role("output"), case.tolerances, strict=True)


def _largest_difference(got: Array, wanted: Array) -> float:
    a, b = got.astype(numpy.float64), wanted.astype(numpy.float64)
    finite = numpy.isfinite(a) & numpy.isfinite(b)
    return float(numpy.abs(a[finite] - b[finite]).max()) if finite.any() else 0.0


def _precision_ratio(
    got: Array, exact_path: Path, spec: TensorSpec, own_error: float | None
) -> float:
    """Return the error against double precision over PyTorch's own; 0 where neither is known.

    See `least_own_error`.
    """
    if own_error is None or not exact_path.is_file():
        return 0.0
    exact = numpy.frombuffer(exact_path.read_bytes(), "<f8").reshape(spec.shape)
    finite = numpy.abs(exact[numpy.isfinite(exact)])
    own = max(own_error, least_own_error(spec.dtype, float(finite.max()) if finite.size else 0.0))
    return _largest_difference(got, exact) / own if own > 0 else 0.0


def _mismatch(message: str, case: Case) -> Diagnostic:
    return Diagnostic(kind="mismatch", message=f"{message} (case {case.name})")
