"""Names in task.cuh: each once, and none that the headers it includes have a macro for."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from ..records.tasks import TaskVariant

_MACRO = re.compile(
    r"""BUFSIZ | EOF | INFINITY | MAXFLOAT | NAN | NFDBITS | NULL | NZERO | WEOF | CSIGNAL | SNAN\w*
    | W(CONTINUED|EXITED|NOHANG|NOWAIT|STOPPED|UNTRACED)
    | std(in|out|err) | errno | math_errhandling | cuda[A-Z]\w*
    | (CUDART|CUDA|CUB|CCCL|THRUST|LIBCUDACXX)\w*
    | (ADJ|AIO|BC|BIG|BOOL|BYTE|CHAR|CHARCLASS|CLOCK|CLOCKS|CLONE|COLL|CPU|CU|DBL|DECIMAL|DELAYTIMER
      |EXIT|EXPR|FD|FILENAME|FLT|FOPEN|FP|HOST|HUGE|INT\d*|INTMAX|INTPTR|IOV|L|LC|LDBL|LINE|LITTLE
      |LLONG|LOGIN|LONG|M|MATH|MAX|MB|MOD|MQ|NAME|NGROUPS|NL|NV|P|PATH|PDP|PIPE|PTHREAD|PTRDIFF|RAND
      |RE|RENAME|RTSIG|SCHAR|SCHED|SEEK|SEM|SHRT|SIG|SIZE|SSIZE|STA|TIME|TIMER|TMP|TTY|UCHAR|UINT\d*
      |UINTMAX|UINTPTR|ULLONG|ULONG|USHRT|WCHAR|WINT|WORD|XATTR)_\w*""",
    re.VERBOSE,
)


_ERRORS = frozenset(errno.errorcode.values())


@dataclass(frozen=True)
class Constants:
    """What task.cuh calls the numbers of a task."""

    dimensions: dict[str, str]
    """By the reference's own name."""
    scalars: dict[str, str]


def constants_of(variant: TaskVariant) -> Constants:
    """Return the names of a variant's dimensions and scalars: the same for both variants."""
    taken = {
        f"{tensor.name.upper()}_{what}"
        for tensor in variant.tensors
        for what in ("NUMEL", "RANK", *(f"SIZE_{axis}" for axis in range(len(tensor.shape))))
    }

    def free(name: str) -> str:
        found = plain(name.upper())
        if is_macro(found):
            found = f"T_{found}"
        while found in taken:
            found += "_"
        taken.add(found)
        return found

    return Constants(
        dimensions={name: free(f"DIM_{name}") for name in variant.dimensions},
        scalars={name: free(name) for name in variant.scalars},
    )


def plain(name: str) -> str:
    """Return a name with a line in place of each character that CUDA takes in no name.

    Python takes letters of any alphabet, and a file may be called anything.
    """
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def is_macro(name: str) -> bool:
    """Say whether a header that a candidate may include defines a name as a macro without
    arguments."""
    return _MACRO.fullmatch(name) is not None or name in _ERRORS
