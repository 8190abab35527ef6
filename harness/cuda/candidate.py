"""One candidate loaded into the worker: a private copy of its library, called on given buffers."""

from __future__ import annotations

import ctypes
import secrets
from _ctypes import dlclose
from pathlib import Path

from .buffers import Buffers
from .host_calls import HostCalls, Launch, bind_to_checks
from .session import Fault


class Candidate:
    """The loaded library. Its host code runs in this process: expect it to end the process."""

    def __init__(self, library: Path, scratch: Path, calls: HostCalls) -> None:
        """Copy the library under a name of its own and load it. Raises OSError.

        A name loaded before would give back the earlier object with its static variables.
        """
        self._calls = calls
        self._path = scratch / f"candidate-{secrets.token_hex(8)}.so"
        self._path.write_bytes(bind_to_checks(library.read_bytes()))
        self._library = calls.run(lambda: ctypes.CDLL(str(self._path)))
        self._launch = self._library.launch
        self._launch.restype = None
        # What is on disk no more cannot be read or loaded again.
        self._path.unlink()

    def workspace_bytes(self) -> int:
        """Return what workspace_bytes() asks for; 0 where it is not defined."""
        try:
            function = self._library.workspace_bytes
        except AttributeError:
            return 0
        function.restype = ctypes.c_size_t
        return int(self._calls.run(function))

    def prepare(self, buffers: Buffers, stream: int) -> PreparedCall:
        """Return a call on these buffers with everything looked up beforehand."""
        return PreparedCall(self._launch, buffers, stream)

    def call(self, buffers: Buffers, stream: int) -> list[Fault]:
        """Call launch() once and return the faults of its host calls; the GPU may still work."""
        prepared = self.prepare(buffers, stream)
        self._calls.begin(stream, buffers.ranges(), timed=False)
        prepared()
        return self._calls.end()

    def launches(self) -> list[Launch]:
        """Return the kernel launches of the last call, in order."""
        return self._calls.launches()

    def close(self) -> None:
        """Unload the library; the GPU must be idle."""
        self._calls.run(lambda: dlclose(self._library._handle))
        self._calls.forget()


class PreparedCall:
    """launch() with its arguments: cheap to call, so that the host keeps ahead of the GPU."""

    def __init__(self, launch: ctypes._NamedFuncPointer, buffers: Buffers, stream: int) -> None:
        self._launch = launch
        self._arguments = [
            *(ctypes.c_void_p(address) for address in buffers.pointers()),
            ctypes.c_void_p(stream),
        ]

    def __call__(self) -> None:
        self._launch(*self._arguments)
