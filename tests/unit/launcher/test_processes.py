"""The processes of a session: found, and ended to the last one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dfl_dist.launcher.processes import end_session, members, session_of

PARENT = "import subprocess, sys, time; p = [subprocess.Popen(['sleep', '600']) for _ in range(2)]; time.sleep(600)"


def test_all_of_a_session_are_ended_and_nobody_else() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True) as leader,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as other,
    ):
        end = time.monotonic() + 30
        while len(members(leader.pid)) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        end_session(leader.pid)
        assert members(leader.pid) == []
        assert leader.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_the_session_of_a_process() -> None:
    assert session_of(Path("/proc/self")) == os.getsid(0)
    assert session_of(Path("/proc/nobody")) is None
    with subprocess.Popen(["true"]) as ended:
        while session_of(Path(f"/proc/{ended.pid}")) is not None:  # it stays there as a zombie until it is waited for
            time.sleep(0.001)
        assert Path(f"/proc/{ended.pid}").exists()
