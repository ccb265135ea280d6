"""A real SLURM of two virtual nodes on this machine, in a folder of its own."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
READY_WITHIN_S = 60.0
CONFIG = """\
ClusterName=dfl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE OverTimeLimit=0 State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """How to talk to it."""

    environment: dict[str, str]

    def call(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, text=True, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def submit(self, *words: str, cwd: Path) -> str:
        """Hand a script in; the job's number."""
        return self.call("sbatch", "--parsable", *words, cwd=cwd).strip().partition(";")[0]

    def state(self, job: str) -> dict[str, str]:
        """What SLURM knows of a job."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.partition("=")[::2] for word in words if "=" in word)

    def wait(self, job: str, timeout_s: float) -> dict[str, str]:
        """Wait for a job to end, requeued ones too."""
        end = time.monotonic() + timeout_s
        while (state := self.state(job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"):
            assert time.monotonic() < end, f"job {job} does not end: {state}"
            time.sleep(0.5)
        return state


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def running_slurm(folder: Path) -> Iterator[Slurm]:
    """Start munge, the controller and both nodes; end them all, and whatever they still run, afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, ports=free_ports(3)))
    (folder / "ctld").mkdir()
    subprocess.run(["mungekey", "--create", f"--keyfile={folder}/munge.key"], check=True, timeout=30)
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
    munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    slurm = Slurm(plain_environment() | {"SLURM_CONF": str(config)})
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]):
            with (folder / "daemons.log").open("ab") as log:
                daemons.append(
                    subprocess.Popen(command, env=slurm.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                )
            if command is munge:
                wait_until((folder / "munge.socket").exists, "munge")
        wait_until(lambda: idle_nodes(slurm) == 2, "two idle nodes")
        yield slurm
    finally:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            slurm.call("scancel", "--user=root", "--full", "--signal=KILL")
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(20)


def plain_environment() -> dict[str, str]:
    """The environment without what tells a job of another SLURM or torchrun."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "TORCHELASTIC_", "DFL_"))}


def idle_nodes(slurm: Slurm) -> int:
    try:
        return slurm.call("sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")
    except AssertionError:  # the controller is not up yet
        return 0


def wait_until(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + READY_WITHIN_S
    while not condition():
        assert time.monotonic() < end, f"there is no {what} after {READY_WITHIN_S:g} s"
        time.sleep(0.1)
