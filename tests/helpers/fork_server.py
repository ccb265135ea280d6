"""The process from which the ranks of tests are forked: it has imported torch and the trainer, once for all tests.

It has one thread and runs no kernel, so that a fork of it is as good as a new process. Its standard input is a socket,
on which `launching` asks for jobs; when that is closed, it ends. A job is a process in a session of its own that forks
the ranks; it ends with the server, and the ranks end with it, so nothing is left when pytest is killed.
"""

import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

import elastic  # noqa: F401  (and with it the launcher)
import pytest  # noqa: F401  (which the programs of ranks use)
import ranks

import dfl_dist.launcher.engine
import dfl_dist.training.main  # noqa: F401

MOST_BYTES = 1 << 20


def serve(requests: socket.socket) -> None:
    """Fork a job for each request; answer with its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: a job writes itself how it ended
    gc.collect()
    gc.freeze()  # what is there now need not be looked at, and so not be copied, in the processes that are forked
    while True:
        text, files, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not text:
            return
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            run_job(server, json.loads(text), *files)
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


def run_job(server: int, request: dict[str, Any], out: int, err: int, status: int) -> None:
    """Become the process of a job, and leave with its exit code, which is also written to the file `status`."""
    os.setsid()
    ranks.end_with_parent(server)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where pytest was started in the background
    for file, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(file, number)
        os.close(file)
    code = 1
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        code = ranks.run_ranks(request["world_size"], request["target"], request["arguments"])
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(status, str(code).encode())
    os._exit(code & 0xFF)


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
