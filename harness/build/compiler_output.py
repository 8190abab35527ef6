"""What nvcc and ptxas printed, as diagnostics on a candidate's lines and kernel resources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..records import Diagnostic, KernelResources

MOST_DIAGNOSTICS = 10

# cudafe++ and cicc: `candidate.cu(12): error: ...`; the host compiler:
# `candidate.cu:12:5: error: ...`; the assembler: `candidate.cu:12: Error: ...`.
_LOCATED = re.compile(
    r"^(?P<file>[^\s:()][^:()]*)(?:\((?P<a>\d+)\)|:(?P<b>\d+)(?::\d+)?)\s*: "
    r"(?:catastrophic |fatal |internal )?(?:error|Error)(?: #\S+)?: (?P<text>.*)$"
)
_PTXAS = re.compile(r"^ptxas \S+, line (?P<line>\d+); (?:error|fatal)\s*: (?P<text>.*)$")
_OTHER = re.compile(
    r"^(?:nvcc|ptxas|nvlink|fatbinary|cicc|cudafe\+\+|collect2|\S*/?ld|g\+\+|c\+\+|clang\S*|cc1plus)"
    r"\s*:?\s*(?:fatal|error)\s*(?:error)?\s*:\s*(?P<text>.*)$"
)
_OTHER_LAUNCH = re.compile(
    r'overloaded function "launch" has "C" linkage|'
    r"distinguished by return type alone.*\blaunch\s*\("
)
"""Said of a `launch` that is not the one task.cuh declares."""
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_FROM_CANDIDATE = re.compile(r"\bat line (\d+) of candidate\.cu|candidate\.cu[:(](\d+)")
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
    found: dict[tuple[str, int | None], int] = {}
    for message, line in _errors(text.splitlines(), ptx):
        found[message, line] = found.get((message, line), 0) + 1
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
        for message, line in list(found)[:MOST_DIAGNOSTICS]
    )


def kernel_resources(text: str) -> tuple[KernelResources, ...]:
    """Return what `ptxas -v` says of each kernel, by the name it has in the PTX (mangled)."""
    kernels: list[KernelResources] = []
    entry: str | None = None
    properties: str | None = None
    numbers: dict[str, int] = {}
    for line in text.splitlines():
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
        elif entry and (match := re.search(r"Used (\d+) registers", line)):
            barriers = re.search(r"used (\d+) barriers", line)
            shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", line)
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
    for index, line in enumerate(lines):
        if match := _LOCATED.match(line):
            number = int(match["a"] or match["b"])
            if Path(match["file"]).name == "candidate.cu":
                yield match["text"] + _quoted(lines, index), number
            else:
                where = f"{Path(match['file']).name}({number}): {match['text']}"
                yield where, _calling_line(lines, index)
        elif match := _PTXAS.match(line):
            yield f"ptxas: {match['text']}", source_line(ptx, int(match["line"]))
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


def source_line(ptx: Path, line: int) -> int | None:
    """Return the line of candidate.cu that a line of the PTX was made from (its last `.loc`)."""
    try:
        text = ptx.read_text(errors="replace").splitlines()
    except OSError:
        return None
    files = {
        match.group(1)
        for row in text
        if (match := re.match(r'\s*\.file\s+(\d+)\s+".*\bcandidate\.cu"', row))
    }
    for row in reversed(text[:line]):
        match = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", row)
        if match and match.group(1) in files:
            return int(match.group(2))
    return None


def _without_paths(text: str) -> str:
    return re.sub(r"(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)", r"\1", text)
