"""Carries out one plan in a process of its own: what profilers and sanitizers watch.

    python launch_program.py MANIFEST.json

MANIFEST.json holds {"driver": path of driver.py, "replay": path of replay.c compiled, "image": path
of the cubin, "plan": a Plan as JSON, "tensors": [{"name", "bytes", "file": path of its bytes, null
for an output}], "profiled": places of the launches round which the profiler is started and
stopped, "turns": the files of two `Turn`s (process/children.py), in which the GPU is the program's
"ready" (to open a context, beside others) and "alone" (to run; empty where it need not wait)}. A
tensor of which a file holds the beginning repeats it. Started by path, by any Python: it imports
nothing of this package but that one file, and no PyTorch, whose kernels nobody asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_POISON = 0xFF
_VARIABLE = "variable "


def main() -> int:
    """Allocate, fill, launch once, wait. Returns the exit status."""
    manifest: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    module = _module(manifest["driver"])
    driver = module.Driver(Path(manifest["replay"]))
    try:
        turns = manifest["turns"]
        # Opening a context takes most of a second under a profiler, and disturbs what others time.
        with _turn(*turns["ready"]):
            _open_context(driver)
        with _turn(*turns["alone"]):
            _run(module, driver, manifest)
            driver.call("cuDevicePrimaryCtxRelease_v2", 0)
    except module.DriverError as error:
        sys.exit(f"CUDA error {error.code}: {error}")
    return 0


def _run(module: Any, driver: Any, manifest: dict[str, Any]) -> None:
    plan = manifest["plan"]
    image = driver.load(Path(manifest["image"]).read_bytes())
    base = {
        each["name"]: _tensor(driver, each["bytes"], each["file"]) for each in manifest["tensors"]
    }
    base["workspace"] = _tensor(driver, plan["workspace_bytes"], None)
    for step in plan["steps"]:
        for buffer in _buffers(step):
            if buffer.startswith(_VARIABLE):
                base[buffer] = driver.variable(image, buffer.removeprefix(_VARIABLE))[0]
    limits = plan["dynamic_shared"]
    steps = []
    for step in plan["steps"]:
        if "kernel" in step:
            function = driver.function(image, step["kernel"], limits.get(step["kernel"], 0))
            arguments = [_content(each, base) for each in step["arguments"]]
            steps.append(module.LaunchStep(
                function, step["grid"], step["block"], step["shared_bytes"], step["attributes"],
                arguments,
            ))  # fmt: skip
        else:
            steps.append(module.TransferStep(
                step["value"], _address(step["target"], base), step["target_pitch"],
                _address(step["source"], base) if step["source"] else 0, step["source_pitch"],
                step["width"], step["height"], _content(step["content"], base),
            ))  # fmt: skip
    stream = ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    driver.call("cuCtxSynchronize")
    for profiled, part in _parts(steps, module.LaunchStep, set(manifest["profiled"])):
        if profiled:
            driver.call("cuProfilerStart")
        if code := module.Steps(driver, part).run(stream.value or 0):
            raise driver.error(code)
        driver.call("cuCtxSynchronize")
        if profiled:
            driver.call("cuProfilerStop")
    for buffer, address in base.items():
        if address and not buffer.startswith(_VARIABLE):
            driver.call("cuMemFree_v2", ctypes.c_uint64(address))


def _parts(steps: list[Any], launch: type, profiled: set[int]) -> list[tuple[bool, list[Any]]]:
    """Return the steps in parts, each with whether the profiler watches it.

    Args:
        steps: launches and transfers.
        launch: the type of launches.
        profiled: places among the launches of those that are watched.
    """
    parts: list[tuple[bool, list[Any]]] = []
    place = 0
    for step in steps:
        watched = isinstance(step, launch) and place in profiled
        place += isinstance(step, launch)
        if not parts or parts[-1][0] != watched:
            parts.append((watched, []))
        parts[-1][1].append(step)
    return parts


@contextlib.contextmanager
def _turn(asked: str = "", given: str = "") -> Iterator[None]:
    """Wait until the GPU is ours, and say when it is needed no more: what comes next may ask anew.
    """
    if not asked:
        yield
        return
    Path(asked).touch()
    while not os.path.exists(given):
        time.sleep(0.005)
    yield
    Path(asked).unlink()
    while os.path.exists(given):
        time.sleep(0.005)


def _open_context(driver: Any) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), 0)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)


def _tensor(driver: Any, size: int, file: str | None) -> int:
    address = ctypes.c_uint64()
    if not size:
        return 0
    driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    if file is None:
        driver.call("cuMemsetD8_v2", address, _POISON, ctypes.c_size_t(size))
        return address.value
    with open(file, "rb") as opened:
        content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    filled = min(size, len(content))
    host = (ctypes.c_char * filled).from_buffer(content)
    driver.call("cuMemcpyHtoD_v2", address, host, ctypes.c_size_t(filled))
    while filled < size:
        count = min(filled, size - filled)
        target = ctypes.c_uint64(address.value + filled)
        driver.call("cuMemcpyDtoD_v2", target, address, ctypes.c_size_t(count))
        filled += count
    return address.value


def _buffers(step: dict[str, Any]) -> list[str]:
    contents = step["arguments"] if "kernel" in step else [step["content"]]
    places = [place for content in contents for _, place in content["addresses"]]
    places += [step[side] for side in ("target", "source") if step.get(side)]
    return [place["buffer"] for place in places]


def _address(place: dict[str, Any], base: dict[str, int]) -> int:
    return base[place["buffer"]] + int(place["offset"])


def _content(content: dict[str, Any], base: dict[str, int]) -> bytes:
    data = bytearray.fromhex(content["hexadecimal"])
    for start, place in content["addresses"]:
        data[start : start + 8] = (_address(place, base) & (1 << 64) - 1).to_bytes(8, "little")
    return bytes(data)


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("driver", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["driver"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
