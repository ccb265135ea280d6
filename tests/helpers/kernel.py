"""A real Jupyter kernel: cells are run in it, and interrupted, as a notebook does."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

WITHIN_S = 120.0
COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


@dataclass
class Cell:
    """What a cell has shown."""

    out: str = ""
    err: str = ""
    value: str | None = None
    error: str | None = None  # the name of the exception that ended it
    traceback: str = ""
    pictures: int = 0

    def take_in(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream" and content["name"] == "stdout":
            self.out += content["text"]
        elif kind == "stream":
            self.err += content["text"]
        elif kind == "error":
            self.error, self.traceback = content["ename"], "\n".join(content["traceback"])
        elif kind == "execute_result":
            self.value = content["data"]["text/plain"]
        elif kind == "display_data":
            self.pictures += "image/png" in content["data"]


class Kernel:
    """A kernel that has been started."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=WITHIN_S)

    def run(self, code: str, *, interrupt_at: str | None = None) -> Cell:
        """Run a cell, and interrupt it once it has printed a text."""
        cell, interrupted = Cell(), False

        def hear(message: dict[str, Any]) -> None:
            nonlocal interrupted
            cell.take_in(message["msg_type"], message["content"])
            if interrupt_at is not None and not interrupted and interrupt_at in cell.out + cell.err:
                interrupted = True
                self.manager.interrupt_kernel()

        self.client.execute_interactive(code, timeout=WITHIN_S, output_hook=hear, allow_stdin=False)
        return cell


@contextmanager
def running_kernel(cwd: Path) -> Iterator[Kernel]:
    """A kernel in a folder, with this Python and nothing of the user's own Jupyter; it is gone afterwards."""
    with TemporaryDirectory() as home:  # with a short name, as it holds sockets
        spec = Path(home) / "kernels" / "this"
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps({"argv": COMMAND, "display_name": "this", "language": "python"}))
        specs = KernelSpecManager(kernel_dirs=[str(spec.parent)], ensure_native_kernel=False)
        file = str(Path(home) / "kernel.json")
        manager = KernelManager(kernel_name="this", kernel_spec_manager=specs, transport="ipc", connection_file=file)
        own = {"IPYTHONDIR": home, "JUPYTER_CONFIG_DIR": home, "JUPYTER_DATA_DIR": home, "OMP_NUM_THREADS": "1"}
        manager.start_kernel(cwd=str(cwd), env=dict(os.environ) | own)
        kernel = None
        try:
            kernel = Kernel(manager)
            yield kernel
        finally:
            if kernel is not None:
                kernel.client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()
