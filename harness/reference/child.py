"""The child process that runs a person's reference with PyTorch, so that no other process needs it.

    python -P -m kernelblaster.harness.reference.child REQUEST.json RESULT.json

REQUEST: {"path", "source", "set": {NAME: value}, "verify": {NAME: value} | null, "cases": folder,
"reading": how the reference is read,
"integers": how freely those of inputs are drawn at most,
"variation": what may vary, where that is known, "secret": what the seeds are made of, 0 for none,
"large": whether no cases are kept}.
With "verify" null the task is described first and its verify dimensions are chosen; otherwise only
the cases are made. With "answers": folder too, one case at full dimensions ("verify") is made, with
its answers in that folder, or, with "exact": true, the tolerances of the case that lies there are.
With "shapes": {"count", "seed", "beside": other sizes of it, or null} nothing is made: the
task is described at sizes drawn around "verify", as {"shapes", "programs"}; programs with others
beside only, around which it is drawn where its tensors cannot be faked.
With "interface": true it is said how the tensors of `launch` are found in forward()'s arguments and
in the model, as {"interface": ...}. With "claim": an input that somebody claims, the one case is
that, or {"not_an_input": why} is answered.
Beside RESULT a file DRAWING is made before integers of inputs are drawn, and UNDER_WAY says what of
the file is run.
RESULT: {"error": one line, "passing": whether it need not fail again} or {"task": {...} | null}.
"""

from __future__ import annotations

import ast
import faulthandler
import json
import logging
import math
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..records.readings import Reading
from ..records.tasks import TaskVariant
from ..records.tensors import DTYPE_BYTES
from ..records.variations import Variation
from ..task.claims import ClaimedInput, NotAnInput
from ..task.dimensions import Dimension, find_dimensions, find_literals
from ..task.full_case import FULL_CASE_BYTES
from ..task.loading import DRAWING, UNDER_WAY
from ..task.rules import TOLERANCES
from .cases.claimed import write_claimed
from .cases.distributions import note_large, write_cases
from .cases.exploration import explore
from .cases.full_case import widen_tolerances, write_full_case
from .exported.program import NotExportable, export_program, op_class
from .loading.copies import is_uncopied
from .loading.hints import instead_of, said
from .loading.model import Reference, ReferenceFault, lacks_memory
from .loading.under_way import note_in
from .sizes.interface import interface_of
from .sizes.other_sizes import other_sizes
from .sizes.small_variant import Cost, Search
from .sizes.variant import Variant, recurrent_at_once


def main(arguments: list[str]) -> int:
    """Answer one request; what is wrong with the reference goes into the result."""
    # What crashes this process is said to be in a line of the reference.
    faulthandler.enable()
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    request_path, result_path = map(Path, arguments)
    request = json.loads(request_path.read_text(encoding="utf-8"))
    note_in(result_path.with_name(UNDER_WAY))
    try:
        result = _answer(request, result_path.with_name(DRAWING).touch)
    except ReferenceFault as fault:
        result = {"error": str(fault), "passing": lacks_memory(fault)}
    except Exception as error:
        if lacks_memory(error) or not is_uncopied(error):
            raise
        result = {
            "error": f"the model cannot be copied, and a copy is run in each case: {said(error)}; "
            "let Model hold tensors, numbers, modules and functions"
        }
    result_path.write_text(json.dumps(result), encoding="utf-8")
    return 0


def warm() -> None:
    """Have PyTorch import what describing a task takes: most of it comes with the first use."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))


def _answer(request: Mapping[str, Any], drawing: Callable[[], None]) -> dict[str, Any]:
    path, source = request["path"], request["source"]
    cases = Path(request["cases"])
    reading = Reading.model_validate(request["reading"])
    if asked := request.get("shapes"):
        full = Variant(source, path, {}, reading)
        base, beside = request["verify"], asked["beside"]
        if beside is not None and not full.faked:  # It is really run, over and over: at the small.
            base, beside = beside, base
        drawn = other_sizes(full, source, base, asked["count"], asked["seed"], beside)
        variation = Variation.model_validate(request["variation"])
        shapes = [each.described("full", variation, {}) for each in drawn]
        programs = [
            _of_what_is_read(_program(each)[0], variation.unread)
            for each in (drawn if beside is not None else ())
        ]
        return {"shapes": shapes, "programs": programs}
    if request.get("interface"):
        return {"interface": interface_of(Variant(source, path, {}, reading))}
    if request["verify"] is not None:
        reference = Reference(source, path, request["verify"], reading=reading)
        variation, secret = Variation.model_validate(request["variation"]), request["secret"]
        if request.get("answers"):
            _limit_memory()
            if request["exact"]:
                widen_tolerances(reference, Path(request["answers"]), variation, secret)
            else:
                answers = Path(request["answers"])
                shapes = request["outputs"]
                write_full_case(reference, cases, answers, shapes, variation, secret)
        elif claim := request.get("claim"):
            try:
                write_claimed(reference, cases, variation, ClaimedInput.model_validate(claim))
            except NotAnInput as refusal:
                return {"not_an_input": str(refusal)}
        elif request.get("large"):
            note_large(reference, cases, variation)
        else:
            write_cases(reference, cases, variation, secret)
        return {"task": None}
    explored = partial(
        explore, integers=request.get("integers", "any"), drawing=drawing
    )
    return {"task": _described(path, source, reading, request["set"], cases, explored)}


def _described(
    path: str,
    source: str,
    reading: Reading,
    chosen: Mapping[str, int],
    cases: Path,
    explored: Callable[[Reference], Variation],
) -> dict[str, Any]:
    """Return the JSON form of a task, what only the caller knows left out, and write its cases."""
    tree = ast.parse(source, path)
    own = find_dimensions(tree)
    literals = {
        name: each for name, each in find_literals(tree).items() if name not in chosen
    }
    full = Variant(source, path, {}, reading)
    program, why_not = _program(full)
    verify = _small_variant(full, source, path, reading, (own, literals), chosen)
    small = program if verify is full or program is None else _program(verify)[0]
    _limit_memory()
    reference = verify.anew()
    variation = explored(reference)
    outputs = [each["dtype"] for each in full.tensors if each["role"] == "output"]
    tolerance = TOLERANCES.get(outputs[0])
    written = own | {name: find_literals(tree)[name] for name in verify.dimensions
                     if name not in own}  # fmt: skip
    names = {name: each.value for name, each in written.items()}
    shrunk = verify.described("verify", variation, names)
    make = note_large if TaskVariant.model_validate(shrunk).is_large else write_cases
    make(reference, cases, variation)
    described = full.described("full", variation, names)
    program, small = (_of_what_is_read(each, variation.unread) for each in (program, small))
    return {
        "op_class": op_class(program, described["tensors"]),
        "dtype": outputs[0],
        "tolerance": tolerance.model_dump() if tolerance else {"absolute": 0, "relative": 0},
        "full": described,
        "verify": shrunk,
        "program": program,
        "program_failure": why_not,
        "verify_program": small,
        "variation": variation.model_dump(),
        "reading": reading.model_dump(),
        "notes": [*_notes(full, verify, variation)],
    }


def _of_what_is_read(
    program: dict[str, Any] | None, unread: Sequence[str]
) -> dict[str, Any] | None:
    """Return a program with nothing in place of what is not read, and without updates of that.

    A buffer that is written before it is read stands for what was written to it.
    """
    if program is None:
        return None
    stands_for: dict[str, Any] = dict.fromkeys(unread)

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return stands_for.get(value.get("ref", ""), value)
        return [kept(each) for each in value] if isinstance(value, list) else value

    nodes = []
    for node in program["nodes"]:
        target = node["args"][0].get("ref") if _is_value(node["args"]) else None
        if target not in stands_for:
            nodes.append(node | {"args": kept(node["args"])})
            continue
        copied = node["op"].startswith("aten.copy")
        stands_for[node["name"]] = kept(node["args"][1]) if copied else stands_for[target]
        if copied:
            stands_for[target] = stands_for[node["name"]]
    outputs = [kept({"ref": name}) for name in program["outputs"]]
    if not all(isinstance(each, dict) for each in outputs):
        return program
    return program | {"nodes": nodes, "outputs": [each["ref"] for each in outputs]}


def _is_value(arguments: Sequence[Any]) -> bool:
    return bool(arguments) and isinstance(arguments[0], dict)


def _notes(full: Variant, verify: Variant, variation: Variation) -> Iterator[str]:
    """Yield what whoever brings the task should know of how it was read."""
    kept = [name for name in variation.updated if name not in variation.unread]
    kept = [*full.changed, *kept]
    if kept:
        yield (
            f"forward() changes {_some(kept)}: a kernel does not, each call begins with the "
            "same ones, and only what forward() returns is compared"
        )
    if full.instance.draws:
        yield (
            "forward() draws random numbers: a kernel is given them, as "
            f"{_some(full.instance.draws)}"
        )
    lost = [name for name in variation.updated if name in variation.unread]
    if lost:
        yield f"forward() updates {_some(lost)}, which no answer depends on: a kernel does not"
    if not verify.cost.possible:
        yield (
            f"nothing smaller runs ({verify.cost.given + verify.cost.kept} elements, "
            f"{verify.cost.work} operations): on a GPU it is verified at its full dimensions, "
            "without one by a sample of each kernel's blocks there; choose small sizes with "
            "--set NAME=VALUE"
        )
    elif not verify.cost.small:
        larger = "its full dimensions" if not verify.dimensions else "the smallest dimensions found"
        yield (
            f"it is verified at {larger}, {verify.cost.given + verify.cost.kept} elements and "
            f"{verify.cost.work} operations a case: that takes a while without a GPU; choose "
            "smaller sizes with --set NAME=VALUE"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


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


def _program(full: Variant) -> tuple[dict[str, Any] | None, str]:
    """Return the exported program, or None and the reason."""
    try:
        instance, reference = full.instance, full.reference
        if full.faked:
            reference = full.anew()
            with FakeTensorMode(allow_non_fake_inputs=True):
                instance = reference.instance(seed=0)
        # Outside the fake mode, which export takes from the inputs: constants made in forward()
        # then keep their values.
        with recurrent_at_once(), reference.surroundings.entered():
            return export_program(instance, reference.path), ""
    except NotExportable as error:
        return None, f"the graph of torch.export holds {error}"
    except Exception as error:  # torch.export raises many types, also of its own internals
        line = _line_of(error, full.reference.path)
        if hint := instead_of(error):
            return None, f"{hint} (line {line})" if line else hint
        where = f"torch.export, line {line}" if line else "torch.export"
        return None, f"{where}: {type(error).__name__}: {said(error)}"


def _line_of(error: Exception, path: str) -> int | None:
    """Return the innermost line of the reference that an error came through, if any."""
    frames = [each.lineno for each in traceback.extract_tb(error.__traceback__)
              if each.filename == path]  # fmt: skip
    return frames[-1] if frames else None


def _small_variant(
    full: Variant,
    source: str,
    path: str,
    reading: Reading,
    sizes: tuple[Mapping[str, Dimension], Mapping[str, Dimension]],
    chosen: Mapping[str, int],
) -> Variant:
    """Return the variant to verify with; `sizes` are dimensions and literals.

    Raises ReferenceFault where nothing is small enough.
    """
    made: dict[tuple[tuple[str, int], ...], Variant] = {}
    faults: list[ReferenceFault] = []

    def trial(loops_alike: bool, values: Mapping[str, int]) -> Cost | None:
        try:
            variant = Variant(source, path, values, reading, full.faked)
        except ReferenceFault as fault:
            faults.append(fault)
            return None
        if not variant.is_like(full, loops_alike):
            return None
        if variant.cost.possible and variant.leads_astray():
            return None
        made[tuple(sorted(values.items()))] = variant
        return variant.cost

    search = Search(*sizes, chosen, full.cost, partial(trial, True))
    search.run()
    if not search.cost.small:
        # A loop over a size is another program at each: only where nothing else is small.
        freer = Search(*sizes, chosen, full.cost, partial(trial, False))
        freer.run()
        if freer.cost.small or not search.cost.possible:
            search = freer
    if chosen and not chosen.items() <= search.values.items():
        why = faults[0] if faults else "with these it is another task"
        words = ", ".join(f"{name}={value}" for name, value in chosen.items())
        raise ReferenceFault(f"--set {words}: {why}")
    if search.cost.possible:
        return made[tuple(sorted(search.values.items()))] if search.values else full
    total = sum(DTYPE_BYTES[each["dtype"]] * math.prod(each["shape"]) for each in full.tensors)
    if not chosen and total <= FULL_CASE_BYTES:
        return full
    names = ", ".join(sizes[0]) or "none"
    reason = f"; shrunk: {faults[0]}" if faults else ""
    raise ReferenceFault(
        f"it is too large to verify ({search.cost.given + search.cost.kept} elements, "
        f"{search.cost.work} operations) and could not be shrunk by itself{reason}; choose small "
        f"sizes with --set NAME=VALUE (names: {names})"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
