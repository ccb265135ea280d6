"""User-supplied models and data: the library call, import paths, a start from saved parameters."""

import inspect
import json
import re
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import own_project
import pytest
import torch
from forked import Ranks
from launching import ROOT, TRAINER, client_states, lines, ranks, run, torchrun, train

import dfl_dist
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import Data
from dfl_dist.config.values import ask
from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.folder import read_environment, write_facts
from dfl_dist.training.build import load_dataset
from dfl_dist.training.main import main

README = ROOT / "README.md"
GUIDE = ROOT / "dfl_dist" / "README.md"


def test_example_of_the_readme(tmp_path: Path) -> None:
    """Runs under torchrun as it stands there, and prints what the README says."""
    text = README.read_text()
    script = re.search(r"```python\n(# moons.py: .*?)```", text, re.DOTALL)
    shown = re.search(r"```console\n\$ torchrun --nproc_per_node=4 moons.py\n(.*?)```", text, re.DOTALL)
    assert script
    assert shown
    assert script[1].count("\n") <= 40
    (tmp_path / "moons.py").write_text(script[1])
    done = run(torchrun(4, program="moons.py"), tmp_path)
    assert done.code == 0, done.err
    told = [re.sub(r"[\d.]+%", "…", line) for line in done.out.splitlines() if line.startswith("round ")]
    assert told == ["round 9: accuracy …", "round 19: accuracy …"]
    assert [re.sub(r"[\d.]+%", "…", line) for line in shown[1].splitlines() if line.startswith("round ")] == told
    assert float(lines(tmp_path / "runs/latest/metrics.jsonl")[-1]["test_accuracy"]) > 0.95


EXAMPLES = dict(re.findall(r"```python\n# (\w+)\.py: (.*?)```", GUIDE.read_text(), re.DOTALL))


@pytest.mark.parametrize("name", ["own_model", "own_data", "own_tracker"])
def test_example_of_library_use(tmp_path: Path, name: str) -> None:
    """Runs with the command in its first line."""
    command, _, script = EXAMPLES[name].partition("\n")
    (tmp_path / f"{name}.py").write_text(script)
    alone, ranks = f"python {name}.py", f"torchrun --nproc_per_node=2 {name}.py"
    assert command in (alone, ranks)
    done = run([sys.executable, f"{name}.py"] if command == alone else torchrun(2, program=f"{name}.py"), tmp_path)
    assert done.code == 0, done.err
    if name == "own_model":
        assert re.search(r"^tensor\(\[\d, \d, \d\]\)$", done.out, re.MULTILINE)
    if name == "own_tracker":
        rows = [line.split(",") for line in (tmp_path / "curve.csv").read_text().splitlines()]
        assert [row[0] for row in rows] == list("012345"), "rank 0 alone"
        assert [row[2] != "" for row in rows] == [False, True] * 3


def test_every_example_is_run() -> None:
    """The notebook's is in test_notebook.py."""
    assert set(EXAMPLES) == {"own_model", "own_data", "own_tracker"}


def test_called_in_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice, each run with its own listener: with a mapping, and with a file."""
    (tmp_path / "short.yaml").write_text(f"{{rounds: 2, num_clients: 3, report: false, out: {tmp_path / '1'}}}")
    first = {"rounds": 3, "num_clients": 4, "local": {"epochs": 1}, "data.partition": "iid", "report": False}
    for number, config in enumerate([first | {"out": str(tmp_path / "0")}, tmp_path / "short.yaml"]):
        told: list[dict[str, object]] = []
        result = dfl_dist.train(config, model=own_project.tiny, data=own_project.load, on_round=told.append)
        assert isinstance(result, dfl_dist.Result)
        recorded = lines(tmp_path / str(number) / "metrics.jsonl")
        assert (result.folder, result.rounds) == (tmp_path / str(number), len(recorded))
        assert told == recorded
        assert result.scores["test_accuracy"] == recorded[-1]["test_accuracy"]
    assert "finished after round 3 of 3" in capsys.readouterr().out


def test_the_library_call_is_an_ordinary_function() -> None:
    assert set(dfl_dist.__all__) <= set(dir(dfl_dist))
    assert inspect.isfunction(dfl_dist.train)
    assert list(inspect.signature(dfl_dist.train).parameters) == ["config", "model", "data", "on_round"]


def test_a_rank_keeps_only_its_own_clients_samples(tmp_path: Path) -> None:
    kept: list[bool] = []
    references: list[weakref.ref[np.ndarray]] = []

    def data() -> tuple[np.ndarray, ...]:
        arrays = own_project.load()
        assert arrays[0].base is arrays[2].base is not None, "views of one array, as is usual"
        references.append(weakref.ref(arrays[0].base))
        return arrays

    config = {"rounds": 1, "num_clients": 2, "report": False, "out": str(tmp_path / "run")}
    dfl_dist.train(
        config, model=own_project.tiny, data=data, on_round=lambda _: kept.append(references[0]() is not None)
    )
    assert kept == [False]


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"local": {"rh": 0.1}}, r"local.rh: unknown key, allowed: those of --help \(did you mean local.rho\?\)"),
        ({"rounds": "many"}, "rounds: given many, allowed: a whole number, 1 or more"),
        ({"local": 3}, "local: unknown key, allowed: those of --help"),
        ("nowhere.yaml", "config: given nowhere.yaml, which is not there, allowed: a file, or "),
    ],
)
def test_mistakes_of_a_script_are_told_like_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: object, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=line):
        dfl_dist.train(config)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_import_paths_on_real_ranks(tmp_path: Path) -> None:
    """The same run by import path and as functions has the same bits, whatever the layout."""
    names = ("--model.name", "own_project:tiny", "--data.name", "own_project:load")
    short = ("--rounds", "3", "--num_clients", "5", "--checkpoint.every", "3")
    by_name = train(3, tmp_path / "names", *names, *short)
    given = {"rounds": 3, "num_clients": 5, "checkpoint": {"every": 3}, "out": str(tmp_path / "own"), "report": False}
    done = run(ranks(2, "own_project:call", json.dumps(given)), tmp_path)
    assert done.code == 0, done.err
    assert [state["x"].tolist() for state in client_states(by_name, 3)] == [
        state["x"].tolist() for state in client_states(tmp_path / "own", 3)
    ]
    asked = (tmp_path / "own" / "config.yaml").read_text()
    assert "name: own_project:tiny" in asked
    assert "name: own_project:load" in asked
    resumed = train(2, by_name, "--resume", str(by_name), "--rounds", "4")
    assert len(lines(resumed / "metrics.jsonl")) == 4


def test_whole_numbers_reach_an_embedding(tmp_path: Path) -> None:
    names = ("--model.name", "own_project:words", "--data.name", "own_project:sentences")
    out = train(2, tmp_path / "run", *names, "--rounds", "15", "--num_clients", "4", "--local.lr", "0.3")
    assert lines(out / "metrics.jsonl")[-1]["test_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--data.name", "own_project:load"], "model.name: given auto, allowed: digits_mlp"),
        (["--data.name", "own_project:nothing"], "data.name: given own_project:nothing, which cannot be imported"),
        (["--data.name", "nowhere:load"], "data.name: given nowhere:load, which cannot be imported"),
        (
            ["--data.name", "own_project:three"],
            "which returns a tuple, allowed: the arrays train_inputs, train_targets",
        ),
        (
            ["--data.name", "own_project:unequal"],
            "whose test_inputs are float64 [4, 3], allowed: numbers, 4 samples of",
        ),
        (["--data.name", "own_project:scores"], "whose train_targets are float64 [4], allowed: a row of whole numbers"),
        (
            ["--data.name", "own_project:load", "--data.augment", "true"],
            "given true for inputs ['samples', 6], allowed",
        ),
        (
            ["--model.init", "nowhere.pt"],
            "model.init: given nowhere.pt, which cannot be read: No such file or directory",
        ),
        (["--data.name", "own_project:too_few_names"], "] is 2, allowed: a name in classes for each, 3"),
        (
            ["--data.name", "own_project:mislabelled"],
            "output for one sample is [1, 3], allowed: [1, 8], a score for each class: test_targets[17] is 7",
        ),
        (
            ["--data.name", "own_project:too_few_targets"],
            "whose train_inputs are float64 [60, 6], allowed: numbers, 50",
        ),
        (
            ["--data.name", "own_project:numbered_anyhow"],
            "whose train_targets[1] is 1000000000, allowed: classes numbered 0,",
        ),
        (["--data.name", "own_project:no_test_set"], "whose test_targets are int64 [0], allowed: a row of whole"),
        (["--data.name", "own_project:no_inputs"], "whose train_inputs are float64 [], allowed: numbers, 60 samples"),
        (["--model.name", "small_models:with_batch_norm"], "(use GroupNorm instead of BatchNorm)"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = [] if "allowed: digits_mlp" in line or "model" in arguments[0] else ["--model.name", "own_project:tiny"]
    assert main([*arguments, *model]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_start_from_saved_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(2, tmp_path / "first", "--rounds", "2", "--num_clients", "4")
    saved = torch.load(first / "model.pt", weights_only=True)
    arguments = ("--rounds", "1", "--num_clients", "3", "--model.init", str(first / "model.pt"))
    second = train(2, tmp_path / "second", *arguments, "--checkpoint.keep", "0")
    flat = torch.cat([value.flatten() for value in saved.values()])
    assert all(torch.equal(state["x"], flat) for state in client_states(second, 0))
    (first / "model.pt").unlink()
    train(2, second, "--resume", str(second), "--rounds", "2")  # which needs it no more
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pt")
    monkeypatch.chdir(tmp_path)
    assert main(["--model.init", "other.pt"]) == 2


def test_a_model_in_double_precision(tmp_path: Path) -> None:
    names = ("--model.name", "own_project:double", "--data.name", "own_project:load", "--rounds", "1")
    out = train(1, tmp_path / "run", *names, "--num_clients", "2", "--dtype", "float64")
    assert client_states(out, 1)[0]["x"].dtype == torch.float64


def test_a_config_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="config: given a list, allowed: a mapping"):
        dfl_dist.train([("rounds", 1)])


def data_settings(given: dict[str, object]) -> Data:
    return resolve(ask({"model.name": "own_project:tiny", **given})).data


def test_arrays_may_be_tensors_and_classes_are_counted() -> None:
    data = load_dataset(data_settings({"data.name": "own_project:tensors", "data.limit": 3}))
    assert data.classes == ("0", "1", "2")
    assert (len(data.train_targets), len(data.test_targets)) == (3, 2)
    assert isinstance(data.train_inputs, np.ndarray)


def test_a_user_supplied_data_set_has_names() -> None:
    data = load_dataset(data_settings({"data.name": "own_project:named"}))
    assert data.classes == ("a", "b", "c")
    assert (data.train_targets.dtype, data.train_inputs.dtype) == (np.int64, np.float32)
    np.testing.assert_array_equal(data.train_inputs, own_project.load()[0][:, ::-1].astype(np.float32))
    torch.from_numpy(data.train_inputs)


def test_a_script_may_go_on_after_a_mistake(tmp_path: Path) -> None:
    done = run(ranks(3, "own_project:call_after_mistakes"), tmp_path)
    assert done.code == 0, done.err
    assert sorted(line for line in done.out.splitlines() if line.startswith("rank ")) == [
        f"rank {rank}: 2 rounds" for rank in range(3)
    ]
    assert not (tmp_path / "runs").exists(), "nothing of the call that was refused"


def test_other_functions_on_another_rank_are_refused(tmp_path: Path) -> None:
    done = run(ranks(2, "own_project:call_with_other_functions"), tmp_path)
    assert done.code == 0, done.err


def test_a_thread_may_call(tmp_path: Path) -> None:
    config = {"rounds": 1, "num_clients": 2, "report": False, "out": str(tmp_path / "run")}
    with ThreadPoolExecutor() as pool:
        assert pool.submit(dfl_dist.train, config, model=own_project.tiny, data=own_project.load).result().rounds == 1


def test_a_group_that_is_there_already_is_refused(tmp_path: Path) -> None:
    done = run(ranks(1, "own_project:call_within_a_group"), tmp_path)
    assert done.code == 0, done.err


def test_torchrun_finds_a_module_beside_the_folder_one_is_in(tmp_path: Path) -> None:
    (tmp_path / "my_nets.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(64, 10)\n")
    done = run(torchrun(2, "--model.name", "my_nets:net", "--rounds", "1", "--report", "false"), tmp_path)
    assert done.code == 0, done.err


def test_a_model_with_dice_of_its_own_starts_from_rank_0s(tmp_path: Path) -> None:
    out = train(3, tmp_path / "run", "--model.name", "own_project:dice", "--rounds", "1", "--checkpoint.keep", "0")
    starts = [state["x"] for state in client_states(out, 0)]
    assert len(starts) == 3
    assert all(torch.equal(start, starts[0]) for start in starts)


def test_data_that_differs_between_ranks_or_since_the_checkpoint_is_refused(tmp_path: Path) -> None:
    tiny = ("--model.name", "own_project:tiny", "--rounds", "1", "--num_clients", "3")
    done = run(ranks(2, TRAINER, "--data.name", "own_project:other_data_everywhere", *tiny), tmp_path)
    assert done.code == 2
    assert "whose arrays on rank 1 are not those on rank 0, allowed: the same ones" in done.err
    out = train(2, tmp_path / "run", "--data.name", "own_project:grown", *tiny)
    (tmp_path / "MORE").touch()
    done = run(ranks(2, TRAINER, "--resume", str(out), "--rounds", "2"), tmp_path)
    assert done.code == 2
    assert "data.name: given own_project:grown, allowed: the data that the run had" in done.err


@pytest.mark.parametrize("world_size", [None, 2])
def test_a_run_does_not_go_on_with_other_samples(tmp_path: Path, world_size: int | None) -> None:
    """As of a function whose dice have no seed; a run of before, which has not written down a digest, goes on."""
    data = ("--data.name", "own_project:differs", "--model.name", "own_project:tiny")
    out = train(world_size, tmp_path / "run", *data, "--rounds", "1", "--num_clients", "2")
    facts = read_environment(out)
    (tmp_path / "OTHER").touch()
    again = Ranks(world_size, TRAINER, ("--resume", str(out), "--rounds", "2"))
    done = run(again, tmp_path)
    assert done.code == 2
    given = r"data\.name: given own_project:differs, whose arrays have the digest [0-9a-f]{8}, allowed: "
    assert re.search(f"{given}the data that the run had, with {facts['data_digest']}\n", done.err)
    assert read_environment(out) == facts
    write_facts(out, {key: value for key, value in facts.items() if key != "data_digest"})
    assert run(again, tmp_path).code == 0
