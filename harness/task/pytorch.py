"""Which PyTorch is installed, and can it stand beside candidates? Asked without importing it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from ..build.toolchain import Toolchain


def require_matching_torch(toolchain: Toolchain) -> None:
    """Raise UserError where PyTorch has no CUDA, or another major version than the compiler's.

    Candidates run on the CUDA runtime that PyTorch loads. PyTorch itself is not imported here.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        torch_version()
        return
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b[^=]*=\s*'(\d+)\.(\d+)", text, re.MULTILINE)
    if match is None:
        raise UserError(
            f"PyTorch {torch_version()} is built without CUDA: install a CUDA build of it"
        )
    major = toolchain.version.split(".")[0]
    if match.group(1) != major:
        raise UserError(
            f"the CUDA compiler is version {toolchain.version}, but PyTorch is built for CUDA "
            f"{match.group(1)}.{match.group(2)}: install one whose first number agrees"
        )


@functools.cache
def torch_version() -> str:
    """Return the version of the installed PyTorch, looked up once: what is installed is searched.

    Raises:
        UserError: there is none; the next call looks again.
    """
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            "PyTorch, which answers for every task, is missing: pip install torch"
        ) from None
