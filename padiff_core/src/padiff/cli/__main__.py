"""Run ``python -m padiff.cli``."""

import sys

from padiff.cli import main

sys.exit(main())
