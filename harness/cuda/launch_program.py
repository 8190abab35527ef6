"""Calls launch() once in a process of its own: what profilers and sanitizers watch.

    python launch_program.py MANIFEST.json

MANIFEST.json holds {"runtime": path of libcudart, "library": path of the candidate's shared object,
"tensors": [{"bytes": size, "file": path of its bytes, or null for an output}]}. Started by path, by
any Python: it imports nothing of this package, and no PyTorch, whose kernels nobody asked for.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from pathlib import Path
from typing import Any

_TO_DEVICE = 1  # cudaMemcpyHostToDevice
_POISON = 0xFF


def main() -> int:
    """Allocate, fill, launch once, wait. Returns the exit status."""
    manifest: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    # Global: the candidate's undefined symbols are looked up there.
    runtime = ctypes.CDLL(manifest["runtime"], mode=ctypes.RTLD_GLOBAL)
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    candidate = ctypes.CDLL(manifest["library"])
    pointers = [_tensor(runtime, each["bytes"], each["file"]) for each in manifest["tensors"]]
    pointers.append(_workspace(runtime, candidate))
    stream = ctypes.c_void_p()
    _check(runtime, runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
    _check(runtime, runtime.cudaDeviceSynchronize())
    candidate.launch.restype = None
    candidate.launch(*pointers, stream)
    _check(runtime, runtime.cudaGetLastError())
    _check(runtime, runtime.cudaDeviceSynchronize())
    for pointer in pointers:
        runtime.cudaFree(pointer)
    return 0


def _tensor(runtime: ctypes.CDLL, size: int, file: str | None) -> ctypes.c_void_p:
    pointer = _allocate(runtime, size)
    if file is None:
        _check(runtime, runtime.cudaMemset(pointer, _POISON, ctypes.c_size_t(size)))
    elif size:
        with open(file, "rb") as opened:
            content = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY)
        host = (ctypes.c_char * size).from_buffer(content)
        _check(runtime, runtime.cudaMemcpy(pointer, host, ctypes.c_size_t(size), _TO_DEVICE))
    return pointer


def _workspace(runtime: ctypes.CDLL, candidate: ctypes.CDLL) -> ctypes.c_void_p:
    try:
        function = candidate.workspace_bytes
    except AttributeError:
        return ctypes.c_void_p()
    function.restype = ctypes.c_size_t
    size = int(function())
    return _tensor(runtime, size, None) if size else ctypes.c_void_p()


def _allocate(runtime: ctypes.CDLL, size: int) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p()
    _check(runtime, runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer


def _check(runtime: ctypes.CDLL, code: int) -> None:
    if code:
        sys.exit(f"CUDA error {code}: {runtime.cudaGetErrorString(code).decode()}")


if __name__ == "__main__":
    sys.exit(main())
