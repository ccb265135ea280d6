"""A job as its command sees it."""

import socket
import subprocess
import time

from dfl_dist.launcher.jobs import Job


def test_a_server_that_has_only_just_been_started_is_ended_at_once() -> None:
    """Before it leads a session of its own, in which the rest of the job would be found."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    started = subprocess.Popen(["sleep", "600"])
    started.returncode = 0  # it is waited for by its process id
    with theirs:
        began = time.monotonic()
        Job(started.pid, ours).kill()
    assert time.monotonic() - began < 60
