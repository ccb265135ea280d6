"""What a script gets back, and what its process is afterwards."""

import contextlib
import dataclasses
import functools
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import own_project
import pytest
import small_models
import torch
from launching import lines, ranks, run, train
from run_folders import lead, write_run
from torch import nn

import dfl_dist

SHORT = {"rounds": 3, "num_clients": 2, "eval.every": 2, "data.limit": 40, "report": False}


def assert_is_the_runs(model: nn.Module, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    saved = torch.load(folder / "model.pt", weights_only=True)
    found = model.state_dict()
    assert found.keys() == saved.keys()
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    assert {value.dtype for value in found.values()} == {dtype}
    assert not model.training


def test_every_rank_has_history_and_model(tmp_path: Path) -> None:
    done = run(ranks(3, "own_project:call_and_look", json.dumps({**SHORT, "num_clients": 4})), tmp_path)
    assert done.code == 0, done.err
    folder = next((tmp_path / "runs").glob("dfedsgpsm-*"))
    told = [json.loads(line.partition("look ")[2]) for line in done.out.splitlines() if line.startswith("look ")]
    assert len(told) == 3
    flat = torch.cat([value.flatten() for value in torch.load(folder / "model.pt", weights_only=True).values()])
    for history, parameters in told:
        assert history == lines(folder / "metrics.jsonl")
        assert torch.equal(torch.tensor(parameters), flat)


@pytest.mark.parametrize(
    ("settings", "functions"),
    [
        ({}, {}),
        ({"dtype": "float64"}, {}),
        ({"dtype": "float64"}, {"model": own_project.dice}),
        ({"model.name": "small_models:with_dropout"}, {}),
        ({}, {"model": own_project.tiny, "data": own_project.load}),
        ({}, {"model": functools.partial(nn.Linear, 64, 10)}),
        ({}, {"model": lambda: nn.Linear(64, 10)}),
    ],
    ids=["built-in", "float64", "random", "by name", "own data", "partial", "lambda"],
)
def test_the_model_of_a_result(tmp_path: Path, settings: dict[str, object], functions: dict[str, object]) -> None:
    out = tmp_path / "run"
    result = dfl_dist.train({**SHORT, **settings, "out": str(out)}, **functions)  # type: ignore[arg-type]
    dtype = torch.float64 if settings.get("dtype") else torch.float32
    assert_is_the_runs(result.load_model(), out, dtype)
    assert result.history == lines(out / "metrics.jsonl")
    assert ["test_accuracy" in line for line in result.history] == [False, True, True]
    again = dfl_dist.open_run(out, model=functions.get("model"))  # type: ignore[arg-type]
    assert again == result
    assert again.history == result.history
    assert_is_the_runs(again.load_model(), out, dtype)


def test_a_start_from_saved_parameters_is_no_part_of_the_model(tmp_path: Path) -> None:
    torch.save(nn.Linear(64, 10).state_dict(), tmp_path / "start.pt")
    init = {"model.init": str(tmp_path / "start.pt"), "out": str(tmp_path / "run")}
    result = dfl_dist.train({**SHORT, **init}, model=small_models.softmax)
    (tmp_path / "start.pt").unlink()
    assert_is_the_runs(result.load_model(), tmp_path / "run")


def test_a_result_stays_that_of_its_own_rounds(tmp_path: Path) -> None:
    first = dfl_dist.train({**SHORT, "out": str(tmp_path / "run")})
    longer = dfl_dist.train({"resume": str(tmp_path / "run"), "rounds": 5})
    assert [len(result.history) for result in (first, longer)] == [3, 5]


@pytest.mark.parametrize("on_round", [None, own_project.stumble])
def test_another_process_may_go_on_with_a_scripts_run_when_the_call_has_ended(tmp_path: Path, on_round: Any) -> None:
    """However it ended, and though the script's process lives on."""
    folder = tmp_path / "run"
    with contextlib.suppress(ZeroDivisionError):
        dfl_dist.train({**SHORT, "out": str(folder), "checkpoint.every": 1}, on_round=on_round)
    train(1, folder, "--resume", str(folder), "--rounds", "4")
    assert len(lines(folder / "metrics.jsonl")) == 4


def test_a_run_is_opened_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--rounds", "4", "--num_clients", "2", "--data.limit", "40", "--eval.every", "3", "--report", "false")
    folder = train(1, tmp_path / "run", *words)
    recorded = lines(folder / "metrics.jsonl")
    recorded[2]["test_loss"] = None
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in recorded[:3]))
    (folder / "environment.json").write_text("{}")
    (folder / "model.pt").unlink()
    monkeypatch.chdir(tmp_path)
    result = dfl_dist.open_run("run")
    assert (result.folder, result.rounds, result.finished) == (folder, 3, False)
    assert result.scores["test_accuracy"] == recorded[2]["test_accuracy"]
    assert math.isnan(result.scores["test_loss"])
    with pytest.raises(dfl_dist.ConfigError, match=r"which has no model\.pt, allowed: a run that has ended"):
        result.load_model()
    with pytest.raises(dfl_dist.ConfigError, match="folder: given nowhere, allowed: the folder of a run"):
        dfl_dist.open_run("nowhere")


def test_a_run_of_a_later_format_is_not_opened_whatever_its_settings(tmp_path: Path) -> None:
    run_folder = write_run(tmp_path / "run", [0.5])
    lead(run_folder, format=99, versions={"dfl_dist": "9.0"})
    with (run_folder / "resolved.yaml").open("a") as file:
        file.write("unheard_of: 1\n")
    words = r"folder: given .*, of format 99 \(written by dfl_dist 9\.0\), allowed: up to format 1, "
    with pytest.raises(dfl_dist.ConfigError, match=words):
        dfl_dist.open_run(run_folder)
    lead(run_folder, format=0)
    with pytest.raises(dfl_dist.ConfigError, match="not the settings of a run: key: given unheard_of"):
        dfl_dist.open_run(run_folder)


def test_another_function_than_the_runs_is_refused_and_none_where_no_name_leads_to_it(tmp_path: Path) -> None:
    dfl_dist.train({**SHORT, "out": str(tmp_path / "run")}, model=lambda: nn.Linear(64, 10))
    other, none = (dfl_dist.open_run(tmp_path / "run", model=model) for model in (small_models.with_dropout, None))
    with pytest.raises(dfl_dist.ConfigError, match="<lambda>, which is not the model of"):
        other.load_model()
    with pytest.raises(dfl_dist.ConfigError, match=r"itself: dfl_dist\.open_run\(folder, model=…\)$"):
        none.load_model()


def test_calls_that_differ_in_nothing_that_is_written_are_two_runs(tmp_path: Path) -> None:
    """A job that is started again goes on by itself; a second call of the same process is no second start of it."""
    done = run(ranks(2, "own_project:call_twice", json.dumps(SHORT)), tmp_path, TORCHELASTIC_RUN_ID="abc")
    assert done.code == 0, done.err
    folders = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    assert sorted(sum(value.numel() for value in torch.load(each / "model.pt").values()) for each in folders) == [
        *(310, 610),
    ]


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    def look() -> list[object]:
        return [torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.initial_seed()]

    def stumble(metrics: dict[str, object]) -> None:
        raise ZeroDivisionError

    for on_round in (None, stumble):
        torch.manual_seed(5)
        before, expected = look(), torch.rand(3)
        torch.manual_seed(5)
        config = {**SHORT, "threads": torch.get_num_threads() + 1, "deterministic": True, "out": str(tmp_path / "run")}
        if on_round is None:
            dfl_dist.train(config)
        else:
            with pytest.raises(ZeroDivisionError):
                dfl_dist.train(config | {"out": str(tmp_path / "other")}, on_round=on_round)
        assert look() == before
        assert torch.equal(torch.rand(3), expected)


def test_logging_that_a_script_has_set_up_is_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        dfl_dist.train({**SHORT, "out": str(tmp_path / "run")})
    assert sum(message.startswith("round 1/3") for message in caplog.messages) == 1
    assert logging.getLogger("dfl_dist").handlers == []


ARRAYS = (np.zeros((4, 6)), np.arange(4), np.zeros((4, 6)), np.arange(4))


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ({"model": nn.Linear(64, 10)}, "model: given an instance of Linear, allowed: a function that returns a module"),
        ({"model": "digits_mlp"}, "model: given 'digits_mlp', allowed: .*; a name is a setting, model.name"),
        ({"data": ARRAYS}, "data: given an instance of tuple, allowed: a function that returns train_inputs, "),
        ({"data": own_project.named()}, "data: given an instance of Dataset, allowed: a function that returns"),
        ({"on_round": []}, "on_round: given an instance of list, allowed: a function that takes the metrics"),
        ({"model": nn.Linear}, r"TypeError: .*'in_features' and 'out_features', allowed: a function without arguments"),
    ],
    ids=["module", "name", "arrays", "data set", "list", "class with arguments"],
)
def test_what_is_no_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, functions: dict[str, object], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dfl_dist.ConfigError, match=line) as error:
        dfl_dist.train(SHORT, **functions)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert (error.value.__cause__, error.value.__suppress_context__) == (None, True)
    assert list(tmp_path.iterdir()) == []


class Plain(nn.Linear):
    """A class that needs no arguments."""

    def __init__(self) -> None:
        super().__init__(64, 10)


def test_a_class_is_a_function(tmp_path: Path) -> None:
    result = dfl_dist.train({**SHORT, "out": str(tmp_path / "run")}, model=Plain)
    assert isinstance(result.load_model(), Plain)


def test_what_is_no_function_on_one_rank_is_refused_on_all(tmp_path: Path) -> None:
    done = run(ranks(2, "own_project:call_with_an_instance"), tmp_path)
    assert done.code == 0, done.err


def test_a_result_can_be_compared_and_shown() -> None:
    result = dfl_dist.Result(Path("runs/x"), 2, {"test_accuracy": 0.5}, True, small_models.softmax)
    assert result == dataclasses.replace(result, _model=None)
    assert repr(result) == "Result(folder=PosixPath('runs/x'), rounds=2, scores={'test_accuracy': 0.5}, finished=True)"
