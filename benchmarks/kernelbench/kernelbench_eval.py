"""Winners under KernelBench's own evaluation, its speed-up beside ours.

    python benchmarks/kernelbench/kernelbench_eval.py --kernelbench DIR --runs DIR... \
        [--out FILE.json]

DIR is a checkout of KernelBench (written for commit 423217d of March 2026); each run is the
directory of a finished run, or a folder of such. Each winner is exported as a solution, and
KernelBench's `eval_kernel_against_ref` compiles, checks and times it, in a process of its own: five
correctness trials, a hundred timed ones, by CUDA events with a cold L2 cache. PyTorch's own
convolutions are in TF32 by default, and further off than KernelBench's 1e-4 where sums are long: a
solution that it calls wrong in fp32 is asked about once more with TF32 off. Solutions are compiled
beforehand, several at once. A verdict that FILE holds already is not asked for again.
While KernelBench times one, the GPU's lock is held: runs of this project on it wait.
Needs a GPU, nvcc and ninja; of what KernelBench imports, the packages that only its prompts and
model calls use may be missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TRIALS = {"num_correct_trials": 5, "num_perf_trials": 100}
NOT_NEEDED = {"dotenv": ("load_dotenv",), "openai": ("OpenAI",), "litellm": ("completion",)}
"""Modules that kernelbench/utils.py imports and evaluation never calls, and names it takes."""

BUILD = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), {})"


def main() -> int:
    """Evaluate all runs; with --evaluate, one solution."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=Path("kernelbench_eval.json"))
    parser.add_argument("--jobs", type=int, default=8, help="Solutions compiled at once.")
    parser.add_argument("--seconds", type=float, default=600.0, help="Longest for one solution.")
    parser.add_argument("--evaluate", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.evaluate:
        print(json.dumps(evaluate(options.kernelbench, options.evaluate)))
        return 0
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    rows = [row for row in rows if "correct" in row]
    from kernelblaster.harness.cuda.gpu_lock import gpu_lock
    from kernelblaster.harness.cuda.present_gpus import find_gpus

    gpu = find_gpus()[0].uuid
    done = {row["run"] for row in rows}
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"CUDA_HOME": toolkit(Path(scratch))}
        folders = []
        for run in finished(options.runs):
            if str(run) in done:
                continue
            try:
                folders.append(export(run, Path(scratch, f"{len(folders)}")))
            except Exception as error:  # A winner that cannot be exported is a row too.
                rows.append({"run": str(run), "refused": str(error)})
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda folder: build(folder, environment, options.seconds), folders))
        for folder in folders:
            row = json.loads((folder / "ours.json").read_text())
            with gpu_lock(gpu):
                row |= evaluated(options.kernelbench, folder, environment, options.seconds)
            rows.append(row)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
            print(line(row), flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return 0


def finished(paths: Sequence[Path]) -> list[Path]:
    """Return the directories of finished runs among paths and in them."""
    found = []
    for path in paths:
        inside = [path] if (path / "run.json").is_file() else sorted(
            each.parent for each in path.glob("**/run.json")
        )
        found += [each.resolve() for each in inside if (each / "result.json").is_file()]
    return list(dict.fromkeys(found))


def export(run: Path, folder: Path) -> Path:
    """Write the solution, the reference and what we measured into a folder. Raises UserError."""
    from kernelblaster.nodes.run.ending.report import stored_result
    from kernelblaster.nodes.run.reading.winner import winner_of
    from kernelblaster.tools.exporting.model_new import model_new

    winner, result = winner_of(run), stored_result(run)
    assert result is not None
    folder.mkdir(parents=True)
    (folder / "solution.py").write_text(model_new(winner))
    (folder / "reference.py").write_text(winner.task.source)
    precision = {"file": "fp32"}.get(winner.task.reading.dtype, winner.task.reading.dtype)
    eager = result.baselines.get("eager_us")
    ours = {
        "run": str(run), "task": result.task, "gpu": result.gpu, "precision": precision,
        "provenance": str(result.provenance), "outcome": result.outcome,
        "our_us": result.best_us, "our_eager_us": eager,
        "our_speedup_over_eager": eager / result.best_us if eager else None,
        "our_speedup_over_faster": result.baselines.get("speedup"),
    }  # fmt: skip
    (folder / "ours.json").write_text(json.dumps(ours))
    return folder


def build(folder: Path, environment: dict[str, str], seconds: float) -> None:
    """Compile a solution where KernelBench will look for it; what fails, fails again there."""
    own = environment | {"TORCH_EXTENSIONS_DIR": str(folder / "build"), "MAX_JOBS": "2"}
    (folder / "build").mkdir()
    command = [sys.executable, "-c", BUILD, str(folder / "solution.py")]
    with (folder / "build.log").open("w") as log:
        try:
            subprocess.run(command, env=own, stdout=log, stderr=log, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            log.write("timed out\n")


def evaluated(
    kernelbench: Path, folder: Path, environment: dict[str, str], seconds: float
) -> dict[str, Any]:
    """Have one solution evaluated in a process of its own; return what KernelBench says."""
    command = [sys.executable, str(Path(__file__).resolve()), "--kernelbench", str(kernelbench),
               "--evaluate", str(folder)]  # fmt: skip
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it ran past {seconds:.0f} s"}
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said
    except (IndexError, ValueError):
        return {"error": (done.stderr or done.stdout).strip().rpartition("\n")[2][-800:]}


def evaluate(kernelbench: Path, folder: Path) -> dict[str, Any]:
    """Call KernelBench's evaluation here; times in microseconds."""
    evaluation = imported(kernelbench)
    import torch

    ours = json.loads((folder / "ours.json").read_text())

    def asked() -> Any:
        return evaluation.eval_kernel_against_ref(
            (folder / "reference.py").read_text(),
            (folder / "solution.py").read_text(),
            measure_performance=True,
            timing_method="cuda_event",
            build_dir=str(folder / "build"),
            device=torch.device("cuda:0"),
            backend="cuda",
            precision=evaluation.get_torch_dtype_from_string(ours["precision"]),
            **TRIALS,
        )

    result = asked()
    if result is None:
        return {"error": "KernelBench gives no result: a lock file of the compiler"}
    exact = None
    if result.compiled and not result.correctness and ours["precision"] == "fp32":
        torch.backends.cudnn.allow_tf32 = False
        exact = asked()
    timed = result.correctness and result.runtime > 0 and result.ref_runtime > 0
    return {
        "compiled": result.compiled,
        "correct": result.correctness,
        "correct_beside_fp32": None if exact is None else exact.correctness,
        "kernelbench_us": 1000 * result.runtime if timed else None,
        "kernelbench_eager_us": 1000 * result.ref_runtime if timed else None,
        "kernelbench_speedup": result.ref_runtime / result.runtime if timed else None,
        "said": {name: str(value)[:600] for name, value in result.metadata.items()},
        "torch": torch.__version__,
    }


def imported(kernelbench: Path) -> Any:
    """Import kernelbench.eval, with nothing in place of what its prompts alone need."""
    for name, names in NOT_NEEDED.items():
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            for each in names:
                setattr(module, each, lambda *_, **__: None)
            sys.modules[name] = module
    sys.path.insert(0, str(kernelbench.resolve() / "src"))
    return importlib.import_module("kernelbench.eval")


def toolkit(scratch: Path) -> str:
    """Return the folder of a CUDA toolkit as PyTorch's extensions link against it.

    Wheels bring no libcudart.so and no lib64: then a folder of links to what they bring.
    """
    wheels = Path(sysconfig.get_path("purelib"), "nvidia").glob("cu*")
    named, nvcc = os.environ.get("CUDA_HOME"), shutil.which("nvcc")
    homes = [Path(named)] if named else []
    homes += [Path(nvcc).resolve().parent.parent] if nvcc else []
    homes += [Path("/usr/local/cuda"), *wheels]
    homes = [each for each in homes if (each / "bin/nvcc").is_file()]
    home = next((each for each in homes if has_headers(each)), None)
    if home is None:
        sys.exit("there is no nvcc: put it on PATH, or name its toolkit with CUDA_HOME")
    if (home / "lib64/libcudart.so").exists():
        return str(home)
    linked = scratch / "cuda"
    libraries = linked / "lib64"
    libraries.mkdir(parents=True)
    for each in home.iterdir():
        if each.name != "lib64":
            (linked / each.name).symlink_to(each)
    wheels = Path(sysconfig.get_path("purelib"), "nvidia").glob("*/lib/libcudart.so*")
    for each in (*home.glob("lib*/*"), *wheels):
        target = libraries / each.name
        if not target.exists():
            target.symlink_to(each)
        if each.name.startswith("libcudart.so.") and not (libraries / "libcudart.so").exists():
            (libraries / "libcudart.so").symlink_to(each)
    return str(linked)


def has_headers(home: Path) -> bool:
    """Say whether CUDA's headers are in a toolkit: a lone nvcc may be a link into another."""
    places = (home / "include", *home.glob("targets/*/include"))
    return any((each / "cuda_runtime.h").is_file() for each in places)


def line(row: dict[str, Any]) -> str:
    """Return one winner as a row of a table."""
    if "refused" in row or "error" in row:
        return f"| {row.get('task', row['run'])} | {row.get('refused') or row['error']} | | | |"
    verdict = "accepted" if row["correct"] else "wrong" if row["compiled"] else "does not compile"
    if row.get("correct_beside_fp32"):
        verdict = "wrong beside TF32, accepted beside fp32"
    numbers = (row["kernelbench_us"], row["kernelbench_speedup"], row["our_us"],
               row["our_speedup_over_eager"])  # fmt: skip
    told = " | ".join("" if each is None else f"{each:.2f}" for each in numbers)
    return f"| {row['task']} | {verdict} | {told} |"


def table(rows: list[dict[str, Any]]) -> str:
    """Return all rows, and how many KernelBench accepts."""
    accepted = sum(bool(row.get("correct")) for row in rows)
    head = "| task | KernelBench | its us | its speed-up | our us | our speed-up over eager |"
    rule = "|---|---|---|---|---|---|"
    return "\n".join(
        (head, rule, *map(line, rows), "", f"KernelBench accepts {accepted} of {len(rows)}.")
    )


if __name__ == "__main__":
    sys.exit(main())
