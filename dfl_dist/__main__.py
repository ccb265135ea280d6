"""`python -m dfl_dist NAME …` is `dfl-dist NAME …`."""

import sys

from dfl_dist.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
