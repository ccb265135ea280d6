"""What rank 0 says at the start."""

import logging
from pathlib import Path

import pytest

from dfl_dist.config import Config
from dfl_dist.job import Job
from dfl_dist.progress import tell_start

HOSTS = ("a", "a", "a", "b")


@pytest.mark.parametrize(
    ("devices", "backend", "lines"),
    [
        (("cuda:0", "cuda:1", "cuda:2", "cuda:0"), "nccl", ["(cuda:0, nccl)", "run folder"]),
        (
            ("cuda:0", "cuda:1", "cuda:0", "cuda:0"),
            "gloo",
            ["(cuda:0, gloo)", "4 ranks share 3 GPUs: models go over gloo, through pinned host memory", "run folder"],
        ),
        (("cpu",) * 4, "gloo", ["(cpu, gloo)", "run folder"]),
    ],
)
def test_devices_and_backend_are_told_once(
    caplog: pytest.LogCaptureFixture, devices: tuple[str, ...], backend: str, lines: list[str]
) -> None:
    config = Config(num_clients=4)
    job = Job(config, config, token="t", start_id="s", folder=Path("runs/x"))
    with caplog.at_level(logging.INFO):
        tell_start(job, backend, list(zip(HOSTS, devices, strict=True)), 100)
    assert len(caplog.messages) == len(lines)
    for message, part in zip(caplog.messages, lines, strict=True):
        assert part in message
