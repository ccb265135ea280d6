"""Who this process is among the others, and what names the job."""

import os
import socket
import sys
from dataclasses import dataclass

from dfl_dist.errors import ConfigError
from dfl_dist.system import born


@dataclass(frozen=True)
class World:
    """This process among the others, as torchrun tells it."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    torchrun: bool = False
    host: int = 0  # torchrun's number for the host, which need not be the launch script's

    @classmethod
    def from_environment(cls) -> "World":
        env = os.environ
        if "RANK" not in env:
            return cls()
        if "WORLD_SIZE" not in env:
            raise ConfigError(
                "WORLD_SIZE: given nothing though RANK is set, allowed: both, as torchrun does, or neither"
            )
        rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
        return cls(
            rank=rank,
            size=size,
            local_rank=int(env.get("LOCAL_RANK", rank)),
            local_size=int(env.get("LOCAL_WORLD_SIZE", size)),
            torchrun=True,
            host=int(env.get("GROUP_RANK", 0)),
        )


def run_id() -> str | None:
    """What stays the same when the same job is started again: SLURM's job id, torchrun's run id, or its agent.

    A notebook or a prompt, where a person decides what is run again, is no such job, also where SLURM has started it.
    """
    env = os.environ
    if hasattr(sys, "ps1"):
        return None
    if job := env.get("SLURM_JOB_ID"):
        return f"slurm-{job}"
    if (run := env.get("TORCHELASTIC_RUN_ID", "none")) != "none":
        return f"torchrun-{run}"
    if "TORCHELASTIC_RESTART_COUNT" not in env:
        return None
    agent = os.getppid()  # torchrun without an id of its own: its process and when that started
    return f"agent-{socket.gethostname()}-{agent}-{started}" if (started := born(agent)) else None
