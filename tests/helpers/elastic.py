"""torchrun's own engine with ranks that are forked instead of started anew: its store, its agent, its restarts."""

import secrets
import signal
import sys

from ranks import call
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def main(arguments: list[str]) -> None:
    """WORLD_SIZE RESTARTS TARGET [ARGUMENT ...]: what torchrun --standalone does with these."""
    world_size, restarts, target, *rest = arguments
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(world_size),
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=int(restarts),
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, run_rank)(target, rest)


def run_rank(target: str, arguments: list[str]) -> None:
    """A rank, without the handlers of signals that it has from the agent."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(call(target, arguments))
