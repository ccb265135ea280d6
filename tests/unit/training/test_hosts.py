"""Settings given on several hosts: which count, which are a host's own, and what is said of those that differ."""

from dataclasses import replace
from pathlib import Path

import pytest

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask
from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.job import Job
from dfl_dist.training.hosts import check_alike, differing, is_in_force, on_host

ASKED = ask({"rounds": 7, "local.rho": None})
JOB = Job(ASKED, resolve(ASKED, 4), None, "run", "start", Path("/a/run"), Path("/a/run/checkpoints/round-000003"))


def test_the_same_value_may_be_given_as_asked_or_as_in_force() -> None:
    assert is_in_force(JOB, "rounds", 7)
    assert is_in_force(JOB, "local.rho", 0.1), "the row's value"
    assert is_in_force(JOB, "num_clients", 4)
    assert not is_in_force(JOB, "rounds", 8)
    assert not is_in_force(JOB, "local.rho", 0.2)


@pytest.mark.parametrize("key", ["max_seconds", "tracker", "stop.target", "stop.patience", "model.init"])
def test_a_null_is_compared_where_it_means_none(key: str) -> None:
    asked = ask({key: {"tracker": "wandb", "model.init": "m.pt", "stop.patience": 2}.get(key, 0.5)})
    limited = replace(JOB, asked=asked, resolved=resolve(asked, 4))
    assert differing(limited, {key: None, "out": None}) == [key]
    assert differing(JOB, {key: None, "local.rho": None}) == []
    assert differing(limited, {"local.rho": None}) == [], "not given"


def test_what_differs_is_refused_with_key_hosts_and_values() -> None:
    check_alike(JOB, [["0", "a"], ["1", "b"]])
    told = [["0", "a"], ["1", "b", "rounds", "8"], ["1", "b", "rounds", "8"], ["2", "c", "seed", "1"]]
    told += [["3", "d", "rounds", "9"]]
    with pytest.raises(ConfigError) as error:
        check_alike(JOB, told)
    given = "given 8 on host 1 (b) and 9 on host 3 (d)"
    assert str(error.value) == f"rounds: {given}, allowed: 7, as on host 0 (a), or nothing"


def test_a_host_has_its_own_data_and_devices_and_path_to_the_run(tmp_path: Path) -> None:
    job = on_host(JOB, {"data.root": "/b", "threads": 3, "device": "cpu", "rounds": 7, "out": str(tmp_path / "run")})
    assert (job.resolved.data.root, job.resolved.threads, job.resolved.device) == ("/b", 3, "cpu")
    assert (job.folder, job.checkpoint) == (tmp_path / "run", tmp_path / "run/checkpoints/round-000003")
    assert on_host(JOB, {}) == JOB
    assert on_host(JOB, {"resume": "never"}).folder == JOB.folder


def test_a_checkpoint_that_is_named_on_a_host_means_its_run(tmp_path: Path) -> None:
    named = str(tmp_path / "run" / "checkpoints" / "round-000009")
    assert on_host(JOB, {"resume": named}).checkpoint == tmp_path / "run/checkpoints/round-000003", "rank 0 decides"
