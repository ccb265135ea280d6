"""What `dfl-dist doctor` checks on one host."""

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from dfl_dist import __version__
from dfl_dist.data import vision
from dfl_dist.distributed.world import World
from dfl_dist.errors import one_line
from dfl_dist.launcher.network import interfaces, is_loopback
from dfl_dist.run_folder.folder import RUNS
from dfl_dist.text import count

OK, WARNING, FAILED = "ok", "warning", "failed"
LITTLE_DISK_BYTES, TOO_LITTLE_DISK_BYTES = 5e9, 100e6
INTERFACE = "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True)
class Finding:
    """One line: its state, what was checked, what was found and, where something is wrong, what to do."""

    state: str
    subject: str
    text: str

    def as_list(self) -> list[str]:
        return list(asdict(self).values())


def examine(world: World) -> list[Finding]:
    """All that one process can see of its host; a check that itself fails is a finding too."""
    found = []
    for check in (versions, torchvision, devices, cores, hostname, interface, disk, open_files):
        try:
            found.append(check(world))
        except Exception as error:
            found.append(Finding(FAILED, check.__name__.replace("_", " "), f"could not be checked: {one_line(error)}"))
    return found


def software() -> str:
    """What must be the same on all hosts."""
    return f"dfl_dist {__version__}, Python {platform.python_version()}, torch {torch.__version__}"


def versions(world: World) -> Finding:
    return Finding(OK, "versions", software())


def torchvision(world: World) -> Finding:
    """Whether torchvision was built for this torch, and can be imported."""
    try:
        distribution = importlib.metadata.distribution("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            FAILED, "torchvision", "is missing, needed for mnist and cifar: pip install -c constraints.txt torchvision"
        )
    wanted = next(
        (found[1] for line in distribution.requires or [] if (found := re.match(r"torch ?\(?==([\d.]+)", line))), None
    )
    here = torch.__version__.partition("+")[0]
    if wanted and wanted != here:
        cure = "install the two together: pip install -c constraints.txt torch torchvision"
        return Finding(
            FAILED, "torchvision", f"{distribution.version} is made for torch {wanted}, here is {here}; {cure}"
        )

    without = ", without its compiled operators, which the trainer does not need" if vision.declared else ""
    return Finding(OK, "torchvision", f"{distribution.version}, made for this torch{without}")


def devices(world: World) -> Finding:
    """The GPUs, and what will carry the models."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        built_for = torch.version.cuda
        if built_for and Path("/proc/driver/nvidia").exists():
            return Finding(
                WARNING,
                "devices",
                f"a GPU is there, but torch (CUDA {built_for}) cannot use it: look at the driver, nvidia-smi",
            )
        return Finding(OK, "devices", "no GPU: trains on the CPU, models go over gloo")
    names = ", ".join(sorted({torch.cuda.get_device_name(index) for index in range(gpus)}))
    if gpus < world.local_size:
        cost = "models go through host memory; one rank per GPU is faster"
        return Finding(WARNING, "devices", f"{world.local_size} ranks share {gpus} × {names}: {cost}")
    return Finding(OK, "devices", f"{gpus} × {names}: models go over NCCL")


def cores(world: World) -> Finding:
    cpus = len(os.sched_getaffinity(0))
    text = f"{cpus} for {count(world.local_size, 'rank')}"
    if torch.cuda.device_count() == 0 and cpus < world.local_size:
        return Finding(
            WARNING,
            "cores",
            f"{text}: they take turns; fewer ranks that host several clients (--num_clients) are as fast",
        )
    return Finding(OK, "cores", text)


def own_address() -> str:
    """The address at which the others will look for this host's ranks, as gloo chooses it."""
    if name := os.environ.get(INTERFACE):
        return next((found.address for found in interfaces() if found.name == name), "")
    return str(socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)[0][4][0])


def hostname(world: World) -> Finding:
    """Whether this host's own name leads to it."""
    name = socket.gethostname()
    several = world.size > world.local_size
    cure = f"set {INTERFACE} on every host, or start with dfl-dist launch, which does"
    try:
        address = str(socket.getaddrinfo(name, None, family=socket.AF_INET)[0][4][0])
    except OSError:
        state = OK if INTERFACE in os.environ else WARNING if several else OK
        return Finding(state, "host name", f"{name} has no address here" + (f"; {cure}" if state == WARNING else ""))
    if is_loopback(address) and several and INTERFACE not in os.environ:
        return Finding(FAILED, "host name", f"{name} is {address}, where no other host reaches it; {cure}")
    return Finding(OK, "host name", f"{name} is {address}")


def interface(world: World) -> Finding:
    """Whether it is clear which interface models take."""
    found, name = interfaces(), os.environ.get(INTERFACE)
    have = ", ".join(map(str, found)) or "none"
    if name and name not in {one.name for one in found}:
        return Finding(
            FAILED, "interface", f"{INTERFACE} is {name}, which is not up or has no IPv4 address; there are {have}"
        )
    if name:
        return Finding(OK, "interface", f"{name} ({own_address()}), by {INTERFACE}")
    return Finding(OK, "interface", f"as the host name says, of {have}")


def disk(world: World) -> Finding:
    """Whether runs can be written, and for how long."""
    folder = next(path for path in (RUNS.absolute(), *RUNS.absolute().parents) if path.is_dir())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(FAILED, "disk", f"{folder} cannot be written ({error.strerror}): train elsewhere, or set --out")
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free in {folder}"
    if free < TOO_LITTLE_DISK_BYTES:
        return Finding(FAILED, "disk", f"{text}: make room, or set --out to another disk")
    if free < LITTLE_DISK_BYTES:
        return Finding(
            WARNING, "disk", f"{text}: a checkpoint holds every client's model; make room, or lower --checkpoint.keep"
        )
    return Finding(OK, "disk", text)


def open_files(world: World) -> Finding:
    """gloo holds connections to every rank, in two groups."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + 4 * world.size
    if limit != resource.RLIM_INFINITY and limit < wanted:
        return Finding(
            WARNING, "open files", f"at most {limit}, {wanted} are wanted for {world.size} ranks: ulimit -n {wanted}"
        )
    return Finding(OK, "open files", "no limit" if limit == resource.RLIM_INFINITY else f"up to {limit}")
