"""`python -m cli`, where the command is not installed."""

import sys

from cli.main import main

sys.exit(main())
