"""`python -m gateway.cli`, where the command is not installed."""

import sys

from gateway.cli.main import main

sys.exit(main())
