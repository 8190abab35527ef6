"""What nvcc and ptxas printed, as diagnostics on a candidate's lines and kernel resources."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from pathlib import Path

from ..records.builds import Diagnostic, KernelResources

MOST_DIAGNOSTICS = 10

# cudafe++ and cicc: `candidate.cu(12): error: ...`; the host compiler:
# `candidate.cu:12:5: error: ...`; the assembler: `candidate.cu:12: Error: ...`.
_LOCATED = re.compile(
    r"^(?P<file>[^\s:()][^:()]*)(?:\((?P<a>\d{1,9})\)|:(?P<b>\d{1,9})(?::\d{1,9})?)\s*: "
    r"(?:catastrophic |fatal |internal )?(?:error|Error)(?: #\S+)?: (?P<text>.*)$"
)
_PTXAS = re.compile(r"^ptxas \S+, line (?P<line>\d{1,9}); (?:error|fatal)\s*: (?P<text>.*)$")
_OTHER = re.compile(
    r"^(?:nvcc|ptxas|nvlink|fatbinary|cicc|cudafe\+\+|collect2|\S*/?ld|g\+\+|c\+\+|clang\S*|cc1plus)"
    r"\s{0,4}:?\s{0,4}(?:fatal|error)\s{0,4}(?:error)?\s{0,4}:\s*(?P<text>.*)$"
)
_OTHER_LAUNCH = re.compile(
    r'overloaded function "launch" has "C" linkage|'
    r"distinguished by return type alone.*\blaunch\s*\("
)
"""Said of a `launch` that is not the one task.cuh declares."""
_PTX_FILE = re.compile(r'\s*\.file\s+(\d{1,9})\s+"[^"]*\bcandidate\.cu"')
_PTX_PLACE = re.compile(r"\s*\.loc\s+(\d{1,9})\s+(\d{1,9})")
_STACK = re.compile(
    r"(\d{1,12}) bytes stack frame, (\d{1,12}) bytes spill stores, (\d{1,12}) bytes spill loads"
)
_LINE_CHARACTERS = 8192
"""Longer lines are cut: what a source makes the compiler print takes time as its length."""
_FROM_CANDIDATE = re.compile(r"\bat line (\d{1,9}) of candidate\.cu|candidate\.cu[:(](\d{1,9})")
_OF_HOST_CODE = re.compile(r"exception handling disabled")
"""What headers run into that are for host code: Thrust, and CUB as a whole (`cub/cub.cuh`)."""
_FAULT_OF_MACHINE = re.compile(
    r"nvcc fatal|(?:/bin/)?sh: |(?:\S*/)?(?:gcc|g\+\+|c\+\+|clang\+\+|cc): .*cannot execute"
)


def machine_fault(text: str) -> str | None:
    """Return the line that blames the machine or the request instead of the source, if any.

    Only the first line counts: once the compiler reads the source, the source can print anything.
    """
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if _FAULT_OF_MACHINE.match(first) else None


def compile_errors(text: str, ptx: Path) -> tuple[Diagnostic, ...]:
    """Return the first errors of a failed nvcc run, each with the candidate's line where known.

    Host and device passes repeat each other, so equal errors are kept once. `ptx` locates what
    ptxas reports by PTX line; it may be missing.
    """
    found: dict[tuple[str, int | None], None] = {}
    lines = [line[:_LINE_CHARACTERS] for line in text.splitlines()]
    for message, line in _errors(lines, ptx):
        found[message, line] = None
        if len(found) == MOST_DIAGNOSTICS:
            break
    if not found:
        tail = [line.strip() for line in text.splitlines() if line.strip()][-3:]
        return (
            Diagnostic(kind="compile_error", message=" / ".join(tail) or "nvcc failed silently"),
        )
    return tuple(
        Diagnostic(
            kind="wrong_signature" if _OTHER_LAUNCH.search(message) else "compile_error",
            message=message,
            line=line,
        )
        for message, line in found
    )


def kernel_resources(text: str) -> tuple[KernelResources, ...]:
    """Return what `ptxas -v` says of each kernel, by the name it has in the PTX (mangled)."""
    kernels: list[KernelResources] = []
    entry: str | None = None
    properties: str | None = None
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        line = line[:_LINE_CHARACTERS]
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            entry, numbers = match.group(1), {}
        elif match := re.search(r"Function properties for (\S+)", line):
            properties = match.group(1)
        elif (match := _STACK.search(line)) and properties == entry:
            stack, stores, loads = (int(value) for value in match.groups())
            numbers |= {
                "stack_bytes": stack,
                "spill_store_bytes": stores,
                "spill_load_bytes": loads,
            }
        elif entry and (match := re.search(r"Used (\d{1,9}) registers", line)):
            barriers = re.search(r"used (\d{1,9}) barriers", line)
            shared = re.search(r"(?<!\d)(\d{1,12})(?:\+\d{1,12})? bytes smem", line)
            kernels.append(
                KernelResources(
                    kernel=entry,
                    registers=int(match.group(1)),
                    barriers=int(barriers.group(1)) if barriers else 0,
                    static_shared_bytes=int(shared.group(1)) if shared else 0,
                    **numbers,
                )
            )
            entry = None
    return tuple(kernels)


def _errors(lines: list[str], ptx: Path) -> Iterator[tuple[str, int | None]]:
    places: list[tuple[int, int]] | None = None
    for index, line in enumerate(lines):
        if match := _LOCATED.match(line):
            number = int(match["a"] or match["b"])
            if Path(match["file"]).name == "candidate.cu":
                yield _without_paths(match["text"]) + _quoted(lines, index), number
            else:
                where = f"{Path(match['file']).name}({number}): {match['text']}"
                if _OF_HOST_CODE.search(where):
                    where += (
                        "; the source includes a header for host code: CUDA's device headers are "
                        "there (of CUB cub/block/ and cub/warp/, not cub/cub.cuh, nor Thrust)"
                    )
                yield where, _calling_line(lines, index)
        elif match := _PTXAS.match(line):
            places = _places(ptx) if places is None else places
            before = bisect.bisect(places, (int(match["line"]) + 1,))
            yield f"ptxas: {match['text']}", places[before - 1][1] if before else None
        elif (match := _OTHER.match(line)) and "aborted due to errors" not in match["text"]:
            yield _without_paths(match["text"]), None


def _quoted(lines: list[str], index: int) -> str:
    """Return the source text printed under an error, where a caret marks it."""
    for candidate, caret in zip(
        lines[index + 1 : index + 3], lines[index + 2 : index + 4], strict=False
    ):
        if re.fullmatch(r"[\s|]*\^[~\s]*", caret):
            text = re.sub(r"^\s*(\d+ \|)?\s*", "", candidate).rstrip()
            return f": `{text[:160]}`"
    return ""


def _calling_line(lines: list[str], index: int) -> int | None:
    """Return the candidate's line that led to an error inside a header (instantiation notes)."""
    for line in lines[index + 1 : index + 20]:
        if _LOCATED.match(line):
            return None
        if match := _FROM_CANDIDATE.search(line):
            return int(match.group(1) or match.group(2))
    return None


def _places(ptx: Path) -> list[tuple[int, int]]:
    """Return (line of the PTX, line of candidate.cu) of its `.loc`s; empty without the file."""
    try:
        rows = ptx.read_text(errors="replace").splitlines()
    except OSError:
        return []
    files: set[str] = set()
    found = []
    for number, row in enumerate(rows, 1):
        if match := _PTX_FILE.match(row):
            files.add(match[1])
        elif match := _PTX_PLACE.match(row):
            found.append((number, int(match[2]), match[1]))
    return [(number, line) for number, line, file in found if file in files]


def _without_paths(text: str) -> str:
    return re.sub(r"(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)", r"\1", text)
