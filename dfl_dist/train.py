"""Train: `torchrun --nproc_per_node=8 -m dfl_dist.train [--config FILE] [--KEY VALUE ...]`.

Without torchrun one process hosts all the clients, for a debugger. This is a script, imported by nobody: the library
call is the function `dfl_dist.train`.
"""

import sys

from dfl_dist.errors import not_installed
from dfl_dist.signals import begin_to_leave, take_over
from dfl_dist.text import show_life

if __name__ == "__main__":
    take_over()  # before anything that takes long to import
    show_life("dfl_dist")

    try:
        from dfl_dist.training.main import main
    except ModuleNotFoundError as error:
        print(f"dfl_dist: {not_installed(error)}", file=sys.stderr)
        sys.exit(2)
    code = main()
    begin_to_leave(code)
    sys.exit(code)
