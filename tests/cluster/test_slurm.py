"""The shipped SLURM scripts on a real SLURM of two nodes."""

import json
from pathlib import Path

import pytest
from cluster_runs import MODEL, undisturbed
from launching import assert_same_run, lines
from slurm import Slurm

ROUNDS = 140
SCRIPT = "launch/slurm/train.sbatch"


@pytest.mark.timeout(600)
def test_a_job_whose_time_is_up_is_queued_again_and_ends_with_the_same_bits(
    cluster: Slurm, project: Path, tmp_path: Path
) -> None:
    """Four ranks on two nodes; the limit of a minute is not enough for all rounds."""
    rounds = ("--rounds", str(ROUNDS), "--checkpoint.every", str(ROUNDS), "--eval.every", "35")
    cluster.environment.update({"DFL_HEAD": "127.0.0.1", "DFL_TEST_PASS_S": "0.1"})
    limit = ("--nodes=2", "--ntasks-per-node=2", "--time=1", "--signal=B:USR1@35")
    job = cluster.submit(*limit, SCRIPT, *rounds, *MODEL, cwd=project)
    ended = cluster.wait(job, 500)
    told = (project / f"dfl_dist-{job}.out").read_text()
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0"), told
    assert int(ended["Restarts"]) >= 1, "it was to be interrupted"
    assert "stopped by a STOP file after round" in told
    assert "goes on after" in told
    folder = project / "runs" / "dfedsgpsm-digits-001"
    assert [path.name for path in (project / "runs").iterdir() if not path.is_symlink()] == [folder.name]
    assert_same_run(undisturbed(tmp_path, 4, ROUNDS, *rounds[2:]), folder, ROUNDS)
    facts = json.loads((folder / "environment.json").read_text())
    assert (facts["run_id"], facts["world_size"]) == (f"slurm-{job}", 4)
    logs = project / "logs" / f"slurm-{job}"
    assert {path.name for path in (logs / "attempt-0").iterdir()} == {f"rank-000{rank}.log" for rank in range(4)}


@pytest.mark.timeout(300)
def test_a_mistake_ends_the_job_at_once(cluster: Slurm, project: Path) -> None:
    cluster.environment.update({"DFL_HEAD": "127.0.0.1"})
    size = ("--nodes=2", "--ntasks-per-node=1", "--time=5")
    job = cluster.submit(*size, SCRIPT, "--model.name", "resnet", cwd=project)
    ended = cluster.wait(job, 200)
    told = (project / f"dfl_dist-{job}.out").read_text()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", "2:0", "0"), told
    assert told.count("model.name: given resnet, allowed: digits_mlp") == 2, "once by each node"
    assert "Traceback" not in told


GRID = """
out: out
ranks: 2
settings: {num_clients: 4, rounds: 3, report: false, local: {epochs: 1}}
grid: {algorithm: [dfedsgpsm, osgp], seed: [0, 1]}
"""


@pytest.mark.timeout(400)
def test_an_array_of_jobs_shares_a_grid(cluster: Slurm, project: Path) -> None:
    (project / "g.yaml").write_text(GRID)
    job = cluster.submit("--array=1-2", "--ntasks-per-node=2", "launch/slurm/sweep.sbatch", "g.yaml", cwd=project)
    for task in (1, 2):
        ended = cluster.wait(f"{job}_{task}", 300)
        told = (project / f"dfl_sweep-{job}-{task}.out").read_text()
        assert ended["JobState"] == "COMPLETED", told
        assert "2 of 2 cells are finished" in told
    cells = sorted(path.name for path in (project / "out").iterdir() if path.is_dir())
    assert cells == ["dfedsgpsm-seed0", "dfedsgpsm-seed1", "osgp-seed0", "osgp-seed1"]
    assert all(len(lines(project / "out" / cell / "metrics.jsonl")) == 3 for cell in cells)
