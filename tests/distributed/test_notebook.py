"""The library call in a notebook: a real kernel, one process, again and again."""

import re
from collections.abc import Iterator

import pytest
from kernel import Kernel, running_kernel
from launching import ROOT

SETTINGS = '{"rounds": 2, "num_clients": 2, "data.limit": 100, "report": False}'
CALL = f"result = dfl_dist.train({SETTINGS}, model=linear)"
LIKE = """
import asyncio, logging, os, signal, threading, time
import torch
from torch import nn
import dfl_dist

def linear():
    return nn.Linear(64, 10)

def state():
    return (
        torch.get_rng_state().sum().item(), torch.initial_seed(), torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
        logging.getLogger().handlers, logging.getLogger().level, logging.getLogger("dfl_dist").handlers,
    )
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with running_kernel(tmp_path_factory.mktemp("notebook")) as kernel:
        assert kernel.run(LIKE).error is None
        yield kernel


def trains(kernel: Kernel) -> bool:
    """Whether the next call is a whole run."""
    cell = kernel.run(f"{CALL}\nresult.finished, result.rounds, len(result.history)")
    return (cell.error, cell.value) == (None, "(True, 2, 2)")


def test_the_notebook_of_the_readme(kernel: Kernel) -> None:
    text = (ROOT / "dfl_dist" / "README.md").read_text()
    notebook = re.search(r"```python\n(# %% .*?)```", text, re.DOTALL)
    assert notebook
    cells = [kernel.run(code) for code in re.split(r"^# %%.*\n", notebook[1], flags=re.MULTILINE)[1:]]
    assert [cell.traceback for cell in cells] == [""] * len(cells)
    assert any("finished after round 10 of 10" in cell.out for cell in cells)
    told = next(cell.err for cell in cells if cell.err)
    assert re.findall(r"^\[rank 0\] round +(\d+)/10 ", told, re.MULTILINE) == [str(n) for n in range(1, 11)]
    assert "\r" not in told, "lines, no bar"
    assert sum(cell.pictures for cell in cells) == 1, "the report leaves the notebook's own figures alone"
    assert float(cells[-1].value or 0) > 0.9


def test_a_call_leaves_the_kernel_as_it_was_and_says_everything_once(kernel: Kernel) -> None:
    kernel.run("torch.manual_seed(7); torch.set_num_threads(1); before = state()")
    for seed in (1, 2):
        config = f'{SETTINGS} | {{"seed": {seed}, "threads": 2, "deterministic": True}}'
        cell = kernel.run(f"result = dfl_dist.train({config}, model=linear)\nstate() == before")
        assert cell.value == "True", kernel.run("before, state()").value
        assert len(re.findall(r"round 1/2", cell.err)) == 1


def test_the_same_cell_again_is_another_run_also_in_a_job_of_slurm(kernel: Kernel) -> None:
    kernel.run('os.environ["SLURM_JOB_ID"] = "77"')
    folders = {kernel.run(f"{CALL}\nresult.folder.name").value for _ in range(2)}
    kernel.run('del os.environ["SLURM_JOB_ID"]')
    assert len(folders - {None}) == 2


def test_a_mistake_is_told_without_our_frames(kernel: Kernel) -> None:
    cell = kernel.run(f"dfl_dist.train({SETTINGS}, model=linear())")
    assert cell.error == "ConfigError"
    assert "model: given an instance of Linear, allowed: a function that returns a module" in cell.traceback
    assert "agreement.py" not in cell.traceback
    assert cell.err == ""
    assert trains(kernel)


def test_an_exception_in_a_cells_function_is_shown_as_it_is(kernel: Kernel) -> None:
    kernel.run("def stumble(metrics):\n    raise ZeroDivisionError('a tracker that divides')")
    cell = kernel.run(f"dfl_dist.train({SETTINGS}, model=linear, on_round=stumble)")
    assert cell.error == "ZeroDivisionError"
    assert "a tracker that divides" in cell.traceback
    cell = kernel.run(f"def broken():\n    return {{}}['width']\n\ndfl_dist.train({SETTINGS}, model=broken)")
    assert cell.error == "KeyError"
    assert trains(kernel)


def test_an_interrupt_ends_the_run_after_its_round_and_it_can_go_on(kernel: Kernel) -> None:
    long = SETTINGS.replace('"rounds": 2', '"rounds": 100000')
    code = f"result = dfl_dist.train({long}, model=linear, on_round=print)\nresult.finished"
    cell = kernel.run(code, interrupt_at="train_loss")
    assert cell.error is None
    assert cell.value == "False"
    assert "stopped by Ctrl-C (SIGINT) after round" in cell.out
    more = 'dfl_dist.train({"resume": str(result.folder), "rounds": result.rounds + 1}).rounds - result.rounds'
    assert kernel.run(more).value == "1", "with the cell's function, found by its name"
    assert trains(kernel)


def test_a_second_interrupt_ends_it_at_once(kernel: Kernel) -> None:
    kernel.run("""
import dfl_dist.signals

def interrupt_twice(metrics):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

usual, dfl_dist.signals.SAME_PRESS_S = dfl_dist.signals.SAME_PRESS_S, 0.0
""")
    cell = kernel.run(f"dfl_dist.train({SETTINGS}, model=linear, on_round=interrupt_twice)")
    kernel.run("dfl_dist.signals.SAME_PRESS_S = usual")
    assert cell.error == "KeyboardInterrupt"
    assert kernel.run("signal.getsignal(signal.SIGINT) is signal.default_int_handler").value == "True"
    assert trains(kernel)


def test_an_interrupt_before_the_first_round_ends_the_cell(kernel: Kernel) -> None:
    kernel.run("def slow():\n    print('building', flush=True)\n    time.sleep(60)")
    cell = kernel.run(f"dfl_dist.train({SETTINGS}, model=slow)", interrupt_at="building")
    assert cell.error == "KeyboardInterrupt"
    assert trains(kernel)


@pytest.mark.parametrize(
    "code",
    [
        f"async def later():\n    await asyncio.sleep(0)\n    {CALL}\n    return result.finished\n\nawait later()",
        f"found = []\ndef work():\n    {CALL}\n    found.append(result.finished)\n\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nfound[0]",
    ],
    ids=["within an event loop", "in a thread"],
)
def test_wherever_a_cell_calls(kernel: Kernel, code: str) -> None:
    cell = kernel.run(code)
    assert (cell.error, cell.value) == (None, "True")
    assert "Traceback" not in cell.err
