"""`python -m attncourse` is `attncourse`: for launchers that want a module, as torchrun does."""

import sys

from attncourse.cli import main

sys.exit(main())
