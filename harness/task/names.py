"""Names in task.cuh: each once, and none that C++, CUDA or the headers it includes have taken."""

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

_CPP_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl
    const constexpr const_cast continue decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while xor xor_eq launch workspace stream
    workspace_bytes main size_t cudaStream_t
    """.split()
)
"""Words of C++, and names that stand in every kernel."""

_CUDA_WORDS = frozenset(
    """
    threadIdx blockIdx blockDim gridDim warpSize dim3 half bfloat16 half2 clock clock64 printf
    assert malloc free memcpy memset std cub thrust cuda nvcuda cg cooperative_groups
    min max abs fma exp exp2 exp10 expm1 log log2 log10 log1p pow sqrt rsqrt cbrt hypot erf erfc
    erfinv erfcinv normcdf lgamma tgamma sin cos tan sinpi cospi asin acos atan atan2 sinh cosh
    tanh asinh acosh atanh floor ceil round rint trunc nearbyint lround lrint fabs fmin fmax fmod
    fdim modf frexp ldexp scalbn remainder copysign nextafter signbit isnan isinf isfinite
    j0 j1 jn y0 y1 yn umin umax llmin llmax ullmin ullmax mul24 umul24 saturate int_as_float
    float_as_int rcp64h
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t ptrdiff_t intptr_t
    uintptr_t uint ushort ulong uchar
    """.split()
)
"""Names that CUDA has in every kernel: what is called so hides it."""
_CUDA_FAMILIES = re.compile(
    r"""(?:u?char|u?short|u?int|u?long|u?longlong|float|double|half|nv_bfloat16)[1-4]
    | (?:make|atomic)[_A-Z]\w* | tex[1-3]D\w* | surf[1-3]D\w* | cuda[A-Z]\w*
    | (?:exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|rsqrt|cbrt|hypot|rhypot|erf|erfc|erfinv
      |erfcinv|erfcx|normcdf|lgamma|tgamma|sin|cos|tan|sinpi|cospi|sincos|asin|acos|atan|atan2|sinh
      |cosh|tanh|asinh|acosh|atanh|floor|ceil|round|rint|trunc|nearbyint|fabs|fmin|fmax|fmod|fdim
      |fma|modf|frexp|ldexp|scalbn|remainder|copysign|nextafter|fdivide|j0|j1|y0|y1)f""",
    re.VERBOSE,
)


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


def identifier(path: str, taken: set[str]) -> str:
    """Return a C++ identifier for a name, distinct from others also when upper-cased."""
    name = plain(path)
    if name[:1].isdigit() or name.startswith("__") or _is_taken(name):
        name = f"t_{name}"
    while name.upper() in taken:
        name += "_"
    taken.add(name.upper())
    return name


def _is_taken(name: str) -> bool:
    """Say whether C++, CUDA or a header of theirs has something else of a name."""
    if name in _CPP_WORDS or name in _CUDA_WORDS or is_macro(name):
        return True
    return _CUDA_FAMILIES.fullmatch(name) is not None
