"""`python -m kernelblaster` and `kernelblaster` are the command line."""

import sys


def main() -> None:
    """Entry point: who interrupts it while it is being imported is not shown where that was."""
    try:
        from .cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("kernelblaster: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
