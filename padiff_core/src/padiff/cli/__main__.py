"""Run ``python -m padiff.cli``: the command line."""

import sys

from padiff.cli import main

sys.exit(main())
