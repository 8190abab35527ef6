"""The child process that runs a person's reference with PyTorch, so that no other process needs it.

    python -P -m kernelblaster.harness.reference.child REQUEST.json RESULT.json

REQUEST: {"path", "source", "set": {NAME: value}, "verify": {NAME: value} | null, "cases": folder,
"variation": what may vary, where that is known, "secret": what the seeds are made of, 0 for none}.
With "verify" null the task is described first and its verify dimensions are chosen; otherwise only
the cases are made. With "answers": folder too, one case at full dimensions ("verify") is made, with
its answers in that folder, or, with "exact": true, the tolerances of the case that lies there are.
RESULT: {"error": one line, "passing": whether it need not fail again} or {"task": {...} | null}.
"""

from __future__ import annotations

import ast
import json
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..records import TOLERANCES, Variation
from ..task.dimensions import module_integers, shrunk, shrunk_apart
from .cases import write_cases
from .exploration import explore
from .full_case import widen_tolerances, write_full_case
from .model import Instance, Reference, ReferenceFault, lacks_memory, specs
from .program import NotExportable, export_program, op_class

SHRUNK_ELEMENTS = 1 << 20
"""Largest total of all tensors of a shrunken variant: a case is checked in well under a second."""

FULL_ELEMENTS = 4 << 20
"""A reference that cannot be shrunk is verified at full size up to this total."""

BASES = (128, 64, 32, 16)
"""Sizes to shrink to, the first that stays within SHRUNK_ELEMENTS."""


def main(arguments: list[str]) -> int:
    """Answer one request; what is wrong with the reference goes into the result."""
    request_path, result_path = map(Path, arguments)
    request = json.loads(request_path.read_text(encoding="utf-8"))
    try:
        result = _answer(request)
    except ReferenceFault as fault:
        result = {"error": str(fault), "passing": lacks_memory(fault)}
    result_path.write_text(json.dumps(result), encoding="utf-8")
    return 0


def warm() -> None:
    """Have PyTorch import what describing a task takes: most of it comes with the first use."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    path, source = request["path"], request["source"]
    cases = Path(request["cases"])
    if request["verify"] is not None:
        reference = Reference(source, path, request["verify"])
        variation, secret = Variation.model_validate(request["variation"]), request["secret"]
        if request.get("answers"):
            _limit_memory()
            if request["exact"]:
                widen_tolerances(reference, Path(request["answers"]), variation, secret)
            else:
                answers = Path(request["answers"])
                shapes = request["outputs"]
                write_full_case(reference, cases, answers, shapes, variation, secret)
        else:
            write_cases(reference, cases, variation, secret)
        return {"task": None}
    integers = module_integers(ast.parse(source, path))
    full = _Variant(source, path, integers)
    program, why_not = _program(full)
    verify = _verify_variant(source, path, full, request["set"])
    small = program if verify is full or program is None else _program(verify)[0]
    variation = explore(verify.reference)
    write_cases(verify.reference, cases, variation)
    dtype = full.tensors[0]["dtype"]
    tolerance = TOLERANCES.get(dtype)
    return {
        "task": {
            "op_class": op_class(program, full.tensors),
            "dtype": dtype,
            "tolerance": tolerance.model_dump() if tolerance else {"absolute": 0, "relative": 0},
            "full": full.described("full", variation),
            "verify": verify.described("verify", variation),
            "program": program,
            "program_failure": why_not,
            "verify_program": small,
            "variation": variation.model_dump(),
        }
    }


def _limit_memory() -> None:
    """Let what does not fit the memory that is left fail, rather than have the system end us."""
    try:
        left = Path("/proc/meminfo").read_text(encoding="ascii").split("MemAvailable:")[1].split()
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except (OSError, IndexError):
        return
    limit = 1024 * int(left[0]) + resource.getpagesize() * int(pages[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


class _Variant:
    """The reference at given dimensions, with the tensors that `launch` would get.

    Shapes come from fake tensors, which cost neither memory nor time; a reference that looks at
    values is really run. Raises ReferenceFault.
    """

    def __init__(self, source: str, path: str, dimensions: Mapping[str, int]) -> None:
        self.dimensions = dict(dimensions)
        self.reference = Reference(source, path, dimensions)
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                self._run()
        except ReferenceFault:
            self._run()

    @property
    def elements(self) -> int:
        """Total number of elements of all tensors."""
        total = 0
        for tensor in self.tensors:
            count = 1
            for size in tensor["shape"]:
                count *= size
            total += count
        return total

    def described(self, name: str, variation: Variation) -> dict[str, Any]:
        constants = set(variation.constants)
        return {
            "name": name,
            "dimensions": self.dimensions,
            "tensors": [each | {"constant": each["name"] in constants} for each in self.tensors],
            "scalars": self.instance.scalars,
        }

    def _run(self) -> None:
        self.instance: Instance = self.reference.instance(seed=0)
        outputs = self.reference.outputs(self.instance.model, self.instance.arguments)
        self.tensors = specs(self.instance, outputs)


def _program(full: _Variant) -> tuple[dict[str, Any] | None, str]:
    """Return the exported program, or None and the reason."""
    try:
        # Outside the fake mode, which export takes from the inputs: constants made in forward()
        # then keep their values.
        return export_program(full.instance, full.reference.path), ""
    except NotExportable as error:
        return None, f"the graph of torch.export holds {error}"
    except Exception as error:  # torch.export raises many types, also of its own internals
        return None, f"torch.export: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _verify_variant(source: str, path: str, full: _Variant, chosen: Mapping[str, int]) -> _Variant:
    """Return the first shrunken variant that runs and is small enough. Raises ReferenceFault."""
    failure: ReferenceFault | None = None
    smallest = full.elements
    for dimensions, limit in _choices(full, chosen):
        try:
            variant = full if dimensions == full.dimensions else _Variant(source, path, dimensions)
        except ReferenceFault as fault:
            failure = failure or fault
            continue
        if _ranks(variant) != _ranks(full):
            failure = failure or ReferenceFault("other numbers of axes when shrunk")
            continue
        if variant.elements <= limit:
            return variant
        smallest = min(smallest, variant.elements)
    names = ", ".join(full.dimensions) or "none: give its sizes names at the top of the file"
    reason = f"; shrunk: {failure}" if failure else ""
    raise ReferenceFault(
        f"it is too large to verify ({smallest} elements) and could not be shrunk by itself"
        f"{reason}; choose small sizes with --set NAME=VALUE (names: {names})"
    )


def _choices(full: _Variant, chosen: Mapping[str, int]) -> Iterator[tuple[dict[str, int], int]]:
    """Yield (dimensions, most elements): all shrunk, all but one shrunk, as written."""
    own, given = full.dimensions, dict(chosen)
    for base in BASES:
        yield shrunk_apart(own, base) | given, SHRUNK_ELEMENTS
    # A relation between dimensions (one divides another) may hold only where they are equal.
    for base in BASES:
        yield {name: shrunk(value, base) for name, value in own.items()} | given, SHRUNK_ELEMENTS
    for base in BASES:
        for kept, value in own.items():
            if shrunk(value, base) != value and kept not in chosen:
                dimensions = {name: shrunk(other, base) for name, other in own.items()}
                yield dimensions | {kept: value} | given, SHRUNK_ELEMENTS
    # What a person chose is taken at its word, up to the limit of a full-size verification.
    yield shrunk_apart(own) | given, FULL_ELEMENTS
    yield own | given, FULL_ELEMENTS


def _ranks(variant: _Variant) -> list[tuple[str, int, str]]:
    return [(tensor["name"], len(tensor["shape"]), tensor["dtype"]) for tensor in variant.tensors]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
