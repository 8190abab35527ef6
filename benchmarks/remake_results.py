"""Makes again what benchmarks/results holds of the simulated GPU: needed after each change of it.

    python benchmarks/remake_results.py [--public FOLDER] [--pages FOLDER] [--list] [WORD ...]

With words, only the results whose names contain one of them. FOLDER of `--public` has the 25 public
launches (probe_kernels.cu, times.csv, ncu_full_raw.csv); that of `--pages` Nsight Compute's pages
for prompt_tokens.py. A result whose data is not there, or whose command fails, stays as it is and
is named at the end. First sights are never made again. What needs a GPU is named by `--list`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, TRUTH = HERE / "results", HERE / "ground_truth"
NEED_A_GPU = (
    "approximations_h100.txt", "by_hand_h200_*", "candidates_h200.json",
    "cost_of_truth_*h200.json", "deferred_run_h200.txt",
    "gpu_tests_*.tsv", "l2_flush_h200.txt", "ncu_sections_h200.json", "noise_h200.txt",
    "optimize_on_gpu_h200.json", "worker_survival_h200.jsonl",
)  # fmt: skip


@dataclass(frozen=True)
class Remade:
    """One result and how it is made."""

    name: str
    """In benchmarks/results; a plot's in docs."""
    script: str
    """Room and name."""
    arguments: Sequence[str] = ()
    """`{out}` is the file itself, for scripts that write it; else it gets what they print."""
    what: str = ""
    """A sentence at its head."""
    headed: bool = False
    """The script says itself when and by what it was made."""
    may_fail: bool = False
    """Status 1 is among what it says."""

    @property
    def writes_itself(self) -> bool:
        """Whether the script is told where to write."""
        return "{out}" in self.arguments or self.script == "simulator/plot_fidelity.py"


def _compared(name: str, *more: str, folder: Path = TRUTH) -> tuple[str, ...]:
    files = ("--kernels", f"{name}.cu", "--times", f"{name}_times.csv")
    if folder != TRUTH:
        files = ("--kernels", "probe_kernels.cu", "--times", "times.csv", "--profiles",
                 "ncu_full_raw.csv")  # fmt: skip
    elif (folder / f"{name}_raw.csv.gz").exists():
        files = (*files, "--profiles", f"{name}_raw.csv.gz")
    paths = [str(folder / each) if each[0] != "-" else each for each in files]
    return (*paths, *more)


def results(public: Path | None, pages: Path | None) -> Iterator[Remade]:
    """Yield every result that needs no GPU, in the order in which they can be made."""
    versus = "simulator/simulated_vs_measured.py"
    yield Remade(
        "calibrate_time_model_h200.txt", "simulator/calibrate_time_model.py", may_fail=True
    )
    if public:
        asked = _compared("", "--domains", "divergent,uniform_loop", folder=public)
        what = "The 25 public launches of probe_kernels.cu; no constant is fitted to them."
        yield Remade("simulated_vs_measured_h200.json", versus, (*asked, "--json"), what)
        yield Remade("simulated_vs_measured_h200.txt", versus, asked, what)
    for name in ("held_out", "second_look"):
        yield Remade(
            f"{name}_in_sample_h200.json", versus, _compared(name, "--json"),
            f"In sample: mended after {name}_first_sight_h200.json.",
        )  # fmt: skip
    for name in ("serial", "constant_memory"):
        yield Remade(
            f"{name}_h200.txt", versus, _compared(name),
            "In sample: constants of the model are from some of these launches.",
        )  # fmt: skip
    simulated = "candidates_simulated.json"
    yield Remade(simulated, "simulator/candidates_vs_measured.py",
                 ("run", "--device", "simulated", "--gpu", "H200", "--out", "{out}"))  # fmt: skip
    for first, of in (("candidates_first_sight_h200.txt", "candidates_simulated_first_sight.json"),
                      ("candidates_h200.txt", simulated)):  # fmt: skip
        both = (str(RESULTS / of), str(RESULTS / "candidates_h200.json"))
        yield Remade(first, "simulator/candidates_vs_measured.py", ("compare", *both))
    yield Remade("fidelity_*.svg", "simulator/plot_fidelity.py")
    yield Remade("outputs_vs_measured_h200.txt", "simulator/outputs_vs_measured.py")
    yield Remade("initial_kernels_vs_measured_h200.txt", "simulator/initial_kernels_vs_measured.py",
                 (str(RESULTS / "optimize_on_gpu_h200.json"),), headed=True)  # fmt: skip
    yield Remade("examples_h100_simulated.txt", "runs/examples.py")
    yield Remade("simulator_census.txt", "simulator/simulator_census.py", ("-o", "{out}"))
    yield Remade("bug_corpus.txt", "judge/bug_corpus.py", headed=True, may_fail=True)
    yield Remade("agents_cost.txt", "models/agents_cost.py")
    yield Remade("prompt_parts.txt", "models/prompt_parts.py")
    if pages:
        yield Remade("prompt_tokens.txt", "models/prompt_tokens.py",
                     ("--pages", str(pages), "--out", "{out}"))  # fmt: skip
    yield Remade("simulator_speed.txt", "simulator/simulator_speed.py", ("-o", "{out}"))


def main() -> None:
    """Make them, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--public", type=Path)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    words = arguments.words or [""]
    chosen = [each for each in results(arguments.public, arguments.pages)
              if any(word in each.name for word in words)]  # fmt: skip
    if arguments.list:
        for each in chosen:
            print(f"{each.name:38s} {_command(each)}")
        print("need a GPU:", ", ".join(NEED_A_GPU))
        return
    failed = [each.name for each in chosen if not _make(each)]
    if failed:
        raise SystemExit(f"not made: {', '.join(failed)}")


def _make(result: Remade) -> bool:
    started = time.perf_counter()
    path = RESULTS / result.name
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / result.script)]
    command += [str(fresh) if each == "{out}" else each for each in result.arguments]
    done = subprocess.run(command, capture_output=not result.writes_itself, text=True, check=False)
    right = done.returncode == 0 or (result.may_fail and done.returncode == 1 and bool(done.stdout))
    if right and not result.writes_itself:
        fresh.write_text(_headed(result, done.stdout))
    if right and fresh.exists():
        fresh.replace(path)
    elif not right and done.stderr:
        print(done.stderr[-600:], file=sys.stderr)
    print(f"{result.name:38s} {'made' if right else 'NOT MADE'} in "
          f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
    return right


def _command(result: Remade) -> str:
    """Return the command as it is told: without the folders of this machine."""
    names = [Path(each).name if os.sep in each else each for each in result.arguments]
    return " ".join(["python", f"benchmarks/{result.script}", *names])


def _headed(result: Remade, text: str) -> str:
    if result.headed:
        return text
    changed = _git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!docs")
    told = {
        "date": datetime.date.today().isoformat(),
        "machine": "measured: one NVIDIA H200 (driver 580.159.04, CUDA 13.0); "
        f"simulated: {os.cpu_count()} cores, no GPU",
        "commit": _git("rev-parse", "--short", "HEAD") + (" and changes" if changed else ""),
        "command": _command(result),
    }  # fmt: skip
    if result.what:
        told["what"] = result.what
    if result.name.endswith(".json"):
        return json.dumps(told | json.loads(text), indent=1) + "\n"
    return "".join(f"{name}: {value}\n" for name, value in told.items()) + "\n" + text


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(HERE.parent), *arguments], capture_output=True,
                          text=True, check=True)  # fmt: skip
    return done.stdout.strip()


if __name__ == "__main__":
    main()
