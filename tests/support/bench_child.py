"""The command line, and the workers of a bench, on the text device: for tests that kill them.

usage: bench_child.py bench SUITE ...    the command; its workers are this file too
       bench_child.py DIRECTORY          a worker
"""

from __future__ import annotations

import sys
from pathlib import Path

import graph_support
from run_child import replace


def main() -> None:
    graph_support.install(replace)
    graph_support.install_bench(replace)
    if Path(sys.argv[1]).is_absolute():
        from kernelblaster.bench.worker import main as work

        work(sys.argv[1])
        return
    from kernelblaster.cli.app import main as command

    replace("kernelblaster.bench.crew.WORKER", (sys.executable, __file__))
    command()


if __name__ == "__main__":
    main()
