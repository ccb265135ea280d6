"""Train: `torchrun --nproc_per_node=8 -m dfl_dist.train [--config FILE] [--KEY VALUE ...]`.

Without torchrun one process hosts all the clients, for a debugger. This is a script, imported by nobody: the library
call is the function `dfl_dist.train`.
"""

import sys

from dfl_dist.training.main import main

if __name__ == "__main__":
    sys.exit(main())
