"""`python -m kernelblaster.harness.jobs` is the slim command line of the host that has the GPU."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
