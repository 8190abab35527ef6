"""What a candidate's device code must not do: read the GPU's clocks, keep memory, keep L2 lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..records import Diagnostic

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\n]*)"', re.MULTILINE)
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+))?")
_OWN_PLACES = re.compile(
    r"\.(?:loc|file)[ \t]*(?:\d|\\|/\*)|//[^\n]{0,9}(?:begin|end) inline asm"
)
_CLOCK = re.compile(r"%(?:globaltimer(?:_lo|_hi)?|clock(?:64|_hi)?)\b")
_HEAP = re.compile(r"^\s*(malloc|free),\s*$")
_PERSISTING = re.compile(r"\bL2::evict_last\b")
_HINTED = re.compile(r"L2::cache_hint\b")
_WAITING = ("/cuda/std/__thread/threading_support.h", "/cuda/std/__thread/threading_support_cuda.h",
            "/cuda/std/__cuda/chrono.h")  # fmt: skip
"""Files of the toolkit whose loops give up waiting (barriers, pipelines, atomics) by the clock."""
_SAFE_POLICIES = frozenset(
    # L2::evict_first and L2::evict_normal, as the toolkit and CUTLASS encode them
    {0x12F0000000000000, 0x10F0000000000000, 0x1000000000000000}
)

Place = tuple[str, str, int | None]
"""File of an instruction, file it was inlined into ("" for none), line of the candidate."""


def device_code(ptx: str, files_are_known: bool = True) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each line of the candidate's DEVICE code that may not be there.

    Reading the GPU's clock, in whatever file, but for the toolkit's own waiting loops; the device's
    heap: what it holds outlives the candidate, and no other than its kernels sees it; and lines of
    the L2 that are to stay: they outlive a flush, and the next timed call finds them. Where the
    source may have renamed its lines, no file is known for the toolkit's.
    """
    found: dict[tuple[str, int | None], None] = {}
    for text, (file, caller, line) in _placed(ptx):
        clock = _CLOCK.search(text)
        waiting = files_are_known and file.endswith(_WAITING) and caller.endswith(_WAITING)
        if clock and not waiting:
            found[f"{clock.group(0)}: device code reads the GPU's clock", line] = None
        if _PERSISTING.search(text):
            found["L2::evict_last: persisting-L2 tricks: its lines outlive a flush", line] = None
        if (heap := _HEAP.match(text)) and (line is not None or not files_are_known):
            words = "device memory is not for a candidate to manage: use the workspace"
            found[f"{heap.group(1)} in device code: {words}", line] = None
    for policy in _unknown_policies(ptx):
        words = "persisting-L2 tricks: a cache hint that is not evict_first or evict_normal"
        found[f"{words} ({policy})", None] = None
    return tuple(
        Diagnostic(kind="forbidden_symbol", message=message, line=line) for message, line in found
    )


def names_its_own_places(device_source: str) -> bool:
    """Say whether inline assembly may tell false places: the text is device code as nvcc reads it.

    Adjacent strings are one there, and no macro is left.
    """
    return _OWN_PLACES.search(device_source) is not None


def _placed(ptx: str) -> Iterator[tuple[str, Place]]:
    """Yield each line with where it comes from."""
    files = dict(_FILE.findall(ptx))
    file = caller = ""
    line: int | None = None
    for text in ptx.splitlines():
        if place := _PLACE.match(text):
            file, caller = files.get(place[1], ""), files.get(place[3] or "", "")
            line = None
            for name, number in ((caller, place[4]), (file, place[2])):
                if re.search(r"(?:^|/)candidate\.cu$", name):
                    line = int(number)
        elif not text.lstrip().startswith((".file", "//")):
            yield text, (file, caller, line)


def _unknown_policies(ptx: str) -> Iterator[str]:
    """Yield the policies of cache hints that may be others than those that are harmless.

    A policy is known where all that is ever moved into its register is a harmless number or comes
    from createpolicy; registers are numbered afresh in each function, which only adds to what must
    be harmless.
    """
    if not _HINTED.search(ptx):
        return
    text = re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)", " ", ptx, flags=re.DOTALL)
    # What ends with its line, or is followed by an instruction.
    text = re.sub(r"^[ \t]*\.(?:loc|file)\b[^\n]*|^[ \t]*\.?[\w$]+:", " ", text, flags=re.MULTILINE)
    sources: dict[str, list[str]] = {}
    hints: dict[str, None] = {}
    for statement in re.split(r"[;{}]", text):
        words = statement.split()
        if words and words[0].startswith("@"):
            words = words[1:]
        if not words or words[0].startswith("."):
            continue
        operands = "".join(words[1:]).split(",")
        if _HINTED.search(words[0]):
            hints[operands[-1]] = None
        opcode = words[0].split(".")[0]
        safe = opcode == "createpolicy" and ".cvt" not in words[0]
        source = "created" if safe else operands[-1] if opcode == "mov" else "computed"
        sources.setdefault(operands[0], []).append(source)
    for hint in hints:
        if not _harmless(hint, sources):
            yield hint


def _harmless(hint: str, sources: dict[str, list[str]]) -> bool:
    """Say whether all that a register may hold is harmless, through whatever it was moved."""
    seen, waiting = {hint}, [hint]
    while waiting:
        value = waiting.pop()
        if value == "created":
            continue
        if re.fullmatch(r"-?\d{1,20}|0[xX][0-9a-fA-F]{1,16}U?", value):
            if int(value.rstrip("U"), 0) & (1 << 64) - 1 not in _SAFE_POLICIES:
                return False
            continue
        if not sources.get(value):
            return False
        waiting += [source for source in sources[value] if source not in seen]
        seen.update(sources[value])
    return True
