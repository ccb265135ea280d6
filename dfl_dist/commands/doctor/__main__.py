"""What each rank of `dfl-dist launch --doctor` runs."""

import os
import sys

from dfl_dist.commands.doctor.command import main

if __name__ == "__main__":
    sys.path.append(os.getcwd())
    sys.exit(main(sys.argv[1:]))
