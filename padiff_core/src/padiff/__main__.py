"""Run ``python -m padiff``: the command line."""

import sys

from padiff.cli import main

if __name__ == "__main__":
    sys.exit(main())
