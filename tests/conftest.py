"""Settings for all tests, and the real data sets where there are any."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines are noisy: how long an example takes says nothing.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# In the background of a script Ctrl-C is ignored, also by what tests start: they press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test needs is seen by the fixtures that it uses, and told by a mark.
MARKS = {"asked_for": "cluster", "browser": "browser", "real_data": "real_data"}
PACKED = Path(__file__).parents[2] / "shared" / "data" / "unpack.py"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in MARKS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKS[fixture])


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A torchvision root with the real MNIST, CIFAR-10 and CIFAR-100: DFL_DATA_ROOT, or packed ones beside the code."""
    if root := os.environ.get("DFL_DATA_ROOT"):
        return Path(root)
    if not PACKED.exists():
        pytest.skip("no real data sets: DFL_DATA_ROOT is not set")
    unpacked = tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, str(PACKED), str(unpacked)], check=True, timeout=200, stdout=subprocess.DEVNULL)
    return unpacked


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests on clusters were run and which were skipped, and why."""
    found: dict[str, str] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.nodeid.startswith("tests/cluster/"):
                reason = f": {report.longrepr[2].removeprefix('Skipped: ')}" if outcome == "skipped" else ""
                found[report.nodeid.partition("cluster/")[2]] = f"{outcome}{reason}"
    if found:
        terminalreporter.section("tests on clusters")
        for name, text in found.items():
            terminalreporter.line(f"{name}: {text}")
