"""Runs inside the reference child: inputs over several distributions with PyTorch's answers.

Written for each case: every tensor of the launch signature as NAME.bin (outputs hold PyTorch's
answer on the CPU) and, for floating outputs, out<k>.f64.bin: the answer in double precision.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...records.tensors import Tolerance
from ...records.variations import Variation
from ...task.rules import CASES, LARGE_FACTORS, OFFSETS, PEAKS
from ..drawing.draws import Draw, draw
from ..loading.model import Reference, ReferenceFault, clone_arguments, lacks_memory
from ..precision.tolerances import Scale
from .case import Case, forms, fresh
from .constancy import constant_after, traced
from .constants import changed_constants
from .mutants import Mutants
from .proof import Proof

TRIED_OF_LARGE = 2
"""Cases that are answered, and not kept, where a task is too large for more."""

TIMED_SEEDS = (7, 8, 9)
"""Of draws like those that are timed: what they do not tell, a timed kernel need not compute."""


def write_cases(
    reference: Reference, directory: Path, variation: Variation, secret: int = 0
) -> None:
    """Write all cases and cases.json; with a `secret` those drawn from it, which nobody knows.

    Raises ReferenceFault (also where forward() is random).
    """
    usual: Usual | None = None
    weak, proof = Mutants(reference), Proof()
    described: list[dict[str, Any]] = []
    for index, (number, name, meaning) in enumerate(CASES):
        seed = seed_of(number, secret)
        case, how = first_finite(reference, variation, seed, name, usual)
        if usual is None:
            _refuse_random(reference, case)
            # Some references answer with infinities by design (masks): then so may all cases.
            usual = Usual(how.still, case.finite, forms(case.outputs))
        tolerances = case.tolerances(scale_of(name))
        if not secret:
            weak.try_case(case, tolerances)
            proof.add(case, tolerances)
        own = "as get_inputs() gives them"
        described.append(
            described_case(case, tolerances, directory / str(index))
            | {
                "name": case_name(seed, name, secret),
                "inputs": meaning if how.distribution == name else own,
                "factor": how.factor if _is_scaled(name, case, variation) else 1.0,
            }
        )
        del case  # Two of them may be more than there is memory for; so below.
    assert usual is not None
    given_away = degenerate(reference, variation, proof)
    timed = "" if given_away else timed_proof(reference, variation, usual)[0]
    document = {
        "cases": described,
        "constants": [] if secret else _write_constants(reference, directory, variation, usual),
        "degenerate": given_away,
        "weak_to": weak_spots(weak, proof, timed),
        "torch": torch.__version__,
    }
    text = json.dumps(document, indent=1)
    (directory / "cases.json").write_text(text, encoding="utf-8")


def note_large(reference: Reference, directory: Path, variation: Variation) -> None:
    """Write cases.json for a task that is too large for cases: what a few answers say of it.

    Raises ReferenceFault, as `write_cases` does.
    """
    usual: Usual | None = None
    proof = Proof()
    for number, name, _ in CASES[:TRIED_OF_LARGE]:
        case, how = first_finite(reference, variation, number, name, usual)
        if usual is None:
            _refuse_random(reference, case)
            usual = Usual(how.still, case.finite, forms(case.outputs))
        proof.add(case, case.tolerances(scale_of(name)))
        del case
    document = {
        "cases": [], "constants": [], "degenerate": degenerate(reference, variation, proof),
        "weak_to": "; ".join(proof.weak_to()), "torch": torch.__version__,
    }  # fmt: skip
    (directory / "cases.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def degenerate(reference: Reference, variation: Variation, proof: Proof) -> str:
    """Return which answer that takes no computing every case accepts, and what makes it so; empty
    where there is none."""
    why = proof.degenerate()
    after = constant_after(reference, variation) if why else ""
    return f"{why} ({after})" if after else why


def weak_spots(weak: Mutants, proof: Proof, timed: str) -> str:
    """Return what the cases do not tell from right; `timed` is what does for all that is timed."""
    return "; ".join(each for each in (weak.weak_to(), *proof.weak_to(), timed) if each)


def _is_scaled(name: str, case: Case, variation: Variation) -> bool:
    """Say whether a factor had any effect on all: what stays within a range has none."""
    return name in ("large", "offset") and any(
        tensor.is_floating_point() and variation.levels.get(name) in ("any", "positive")
        for name, tensor in case.instance.inputs.items()
    )


def seed_of(number: int, secret: int) -> int:
    """Return the seed of a case: its number, or what a secret makes of that."""
    if not secret:
        return number
    return int.from_bytes(hashlib.sha256(f"{secret} {number}".encode()).digest()[:4], "little")


def scale_of(name: str) -> Scale:
    """Return which way tolerances follow the answers of a distribution.

    Up: sums have terms whose rounding is more than KernelBench's tolerance where the terms are many
    or large. Down as well where an answer is small for another reason than cancelling.
    """
    return "up" if name in ("large", "offset") else "both"


def case_name(seed: int, name: str, secret: int) -> str:
    """Return what a case is called in verdicts; of a secret one its seed is no news."""
    return f"secret-{name}" if secret else f"seed{seed}-{name}"


class Usual(NamedTuple):
    """What get_inputs()'s own values make of a task: other inputs must not make less."""

    still: bool
    """Whether parameters that the seed does not choose cannot be varied for them."""
    finite: bool
    forms: list[tuple[torch.Size, torch.dtype]]

    def is_met_by(self, case: Case) -> bool:
        """Say whether a case answers in the same shapes, with numbers where these were."""
        return forms(case.outputs) == self.forms and (case.finite or not self.finite)


def timed_proof(
    reference: Reference, variation: Variation, usual: Usual
) -> tuple[str, list[Tolerance | None]]:
    """Return which answer that takes no computing is right for all that is timed, empty where none
    is, and the tolerances of timed answers. Raises ReferenceFault.
    """
    proof, found = Proof(), []
    for seed in TIMED_SEEDS:
        case = Case(reference, draw(reference, Draw(seed, "timed", still=usual.still), variation))
        found.append(case.tolerances("both"))
        proof.add(case, found[-1])
        del case
    why = proof.degenerate()
    if why:
        why = why.replace(" passes every case of this task", "") + (
            " where inputs are like those of get_inputs(), as the timed ones are (it is verified "
            "on others)"
        )
    return why, [widest(each) for each in zip(*found, strict=True)]


def widest(tolerances: Sequence[Tolerance | None]) -> Tolerance | None:
    """Return the one of the largest absolute part, with room for the steps of all; None beside
    one that is None."""
    known = [each for each in tolerances if each is not None]
    if len(known) < len(tolerances):
        return None
    steps = {part: max(getattr(each, part) for each in known) for part in ("step", "share")}
    steps["least_step"] = min((each.least_step for each in known if each.share), default=0.0)
    return max(known, key=lambda each: each.absolute).model_copy(update=steps)


def first_finite(
    reference: Reference,
    variation: Variation,
    seed: int,
    distribution: str,
    usual: Usual | None,
) -> tuple[Case, Draw]:
    """Return a case and how it was drawn, from the most demanding that PyTorch survives.

    get_inputs()'s own values are the last resort. Raises ReferenceFault.
    """
    case: Case | None = None
    for how in _ways(seed, distribution, variation):
        case = None
        try:
            case = Case(reference, draw(reference, how, variation))
        except ReferenceFault as fault:
            if lacks_memory(fault) or how.still:
                raise
            continue
        told = case.finite if usual is None else usual.is_met_by(case)
        if how.trained and told and not case.is_precise:
            continue
        if how.still or (told and not case.hangs_on_ties):
            break
    assert case is not None
    return case, how


_FACTORS = {"large": LARGE_FACTORS, "offset": OFFSETS, "zeros": PEAKS}
_ALIKE = ("gaussian", "uniform", "zeros", "offset")
"""Distributions in which lines hold equal elements by intent, where that tells anything."""


def _ways(seed: int, distribution: str, variation: Variation) -> Iterator[Draw]:
    trained = {"gaussian": variation.trained, "zeros": variation.alone}.get(distribution)
    if distribution != "normal":
        for factor in _FACTORS.get(distribution, (1.0,)):
            for way in (True, False) if trained else (False,):
                yield Draw(seed, distribution, factor, trained=way)
                if distribution in _ALIKE:
                    yield Draw(seed, distribution, factor, trained=way, lines="unlike")
        yield Draw(seed, distribution, tame=True)
    yield Draw(seed, "normal")
    yield Draw(seed, "normal", still=True)


def _write_constants(
    reference: Reference, directory: Path, variation: Variation, usual: Usual
) -> list[dict[str, Any]]:
    """Write a case for each constant of the task in which that one is another."""
    described = []
    found = changed_constants(reference, variation, usual.is_met_by)
    for index, (name, _, case) in enumerate(found):
        tolerances = case.tolerances("down")
        written = described_case(case, tolerances, directory / f"constant{index}")
        described.append(written | {"name": name, "inputs": "a constant is another"})
    return described


def described_case(
    case: Case, tolerances: Sequence[Tolerance | None], folder: Path
) -> dict[str, Any]:
    """Write a case into a new folder; return what cases.json says of it, without its name."""
    folder.mkdir()
    case.write(folder)
    return {
        "directory": folder.name,
        "tolerances": [None if each is None else each.model_dump() for each in tolerances],
        "own_errors": case.own_errors(),
    }


_RANDOM = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like",
           "bernoulli", "normal", "multinomial", "normal_", "uniform_", "bernoulli_")  # fmt: skip


def _refuse_random(reference: Reference, case: Case) -> None:
    arguments = clone_arguments(case.instance.arguments, fresh)
    again = reference.outputs(copy.deepcopy(case.model), arguments)
    for first, second in zip(case.outputs, again, strict=True):
        if not torch.equal(first.nan_to_num(nan=0.5), second.nan_to_num(nan=0.5)):
            raise ReferenceFault(_randomness(reference, case))


def _randomness(reference: Reference, case: Case) -> str:
    model = case.model
    dropouts = [
        f"self.{name} with p={module.p}"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.modules.dropout._DropoutNd)
        and module.training and module.p > 0
    ]  # fmt: skip
    if dropouts:
        return (
            f"it drops out at random ({', '.join(dropouts[:3])}), as it does in training: there is "
            "nothing to verify a kernel against; --mode eval reads it as after model.eval()"
        )
    drawn = [
        f"{step.name} in line {step.line}"
        for step in traced(reference, case.instance) if step.name in _RANDOM
    ]  # fmt: skip
    if drawn:
        return (
            f"forward() draws random numbers ({', '.join(drawn[:3])}): there is nothing to verify "
            "a kernel against; draw them in get_inputs() and give them to forward()"
        )
    training = "; if that is dropout, --mode eval turns it off" if model.training else ""
    return (
        "forward() gives another answer when called again on the same input (random numbers): "
        f"there is nothing to verify a kernel against{training}"
    )
