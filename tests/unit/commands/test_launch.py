"""`dfl-dist launch`: what its command line means, and what is refused before anything is started."""

from pathlib import Path

import pytest

from dfl_dist.commands.launch import read
from dfl_dist.commands.main import main
from dfl_dist.launcher.jobs import TRAINER, Program
from dfl_dist.launcher.launch import Hosts


def test_on_one_host() -> None:
    launch = read(["-n", "3", "--rounds", "5", "--logs", "a", "--status", "b"])
    assert launch.program == Program(TRAINER, ["--rounds", "5"], 3, restarts=3, logs=Path("a").resolve())
    assert launch.hosts.count == 1
    assert launch.status == Path("b").resolve()
    assert launch.command == "dfl-dist launch -n 3 --logs a --status b"
    assert read([]).program == Program(TRAINER, [], None, restarts=3)
    assert read(["--start", "spawn"]).program.start == "spawn"


def test_a_launch_has_a_name_of_its_own_unless_it_is_given_one() -> None:
    assert read(["--id", "x"]).token == "x"
    assert read([]).token != read([]).token


def test_on_several_hosts() -> None:
    launch = read(["--head", "a", "--hosts", "3", "--host", "1", "--port", "77", "--id", "x", "--restarts", "0"])
    assert launch.program == Program(TRAINER, [], None)
    assert launch.hosts == Hosts(count=3, own=1, head="a", port=77, job_id="x")
    assert launch.status is None


@pytest.mark.parametrize(("where", "beside"), [([], 1), (["--hosts", "2", "--head", "a", "--host", "1"], 0)])
def test_a_coordinator_is_beside_the_ranks_of_the_gpus_on_the_first_host(where: list[str], beside: int) -> None:
    assert read([*where, "--rank0", "coordinator"]).program.without_gpu == beside


def test_a_dry_run_is_no_setting() -> None:
    launch = read(["--dry-run", "-n", "3", "--rounds", "5"])
    assert launch.dry_run
    assert launch.program == read(["-n", "3", "--rounds", "5"]).program
    assert not read([]).dry_run


def test_the_doctor_is_not_started_again() -> None:
    launch = read(["--head", "a", "--hosts", "3", "--host", "0", "--doctor"])
    assert launch.program == Program("dfl_dist.commands.doctor.command:main", [], None)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--rouds", "3"], "rouds: unknown key, allowed: those of --help (did you mean rounds?)"),
        (["-n", "two"], "ranks: given two, allowed: a whole number, 1 or more"),
        (["-n", "0"], "ranks: given 0, allowed: a whole number, 1 or more"),
        (["--hosts", "2", "--host", "0"], "head: given nothing, allowed: the head's address"),
        (["--hosts", "2", "--head", "a"], "host: given nothing, allowed: which of them this is"),
        (["--hosts", "2", "--head", "a", "--host", "2"], "host: given 2, allowed: 0 to 1, with --hosts 2"),
        (["--hosts", "2", "--head", "no such host", "--host", "0"], "head: given no such host, allowed: an IPv4"),
        (["--start", "sporn"], "start: given sporn, allowed: fork or spawn (did you mean spawn?)"),
        (["train"], "launch: given train, allowed: options and settings"),
        (["--doctor", "--rounds", "3"], "doctor: given --rounds, allowed: no settings of a run beside it"),
        (["--doctor", "--dry-run"], "doctor: given --dry-run, allowed: no settings of a run beside it"),
        (["--status", "/proc/nowhere"], "status: given /proc/nowhere, which cannot be made"),
    ],
)
def test_a_mistake_on_the_command_line_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dfl_dist.launcher.launch.start", None)
    assert main(["launch", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dfl-dist: {line}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_status_folder_with_a_file_of_the_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    monkeypatch.setattr("dfl_dist.launcher.launch.start", None)
    (tmp_path / "ending").write_text("mine")
    assert main(["launch", *flags, "--status", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"dfl-dist: status: given {tmp_path}, which holds ending, allowed: ")
    assert (tmp_path / "ending").read_text() == "mine"


@pytest.mark.parametrize(
    ("mistake", "key"),
    [
        (["--rouds", "3"], "rouds"),
        (["-n", "two"], "ranks"),
        (["--start", "sporn"], "start"),
        (["--logs", f"{__file__}/logs"], "logs"),
    ],
)
def test_without_the_head_a_host_refuses_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mistake: list[str], key: str
) -> None:
    monkeypatch.setattr("dfl_dist.launcher.launch.start", None)
    monkeypatch.setattr("dfl_dist.launcher.launch.TELL_WITHIN_S", 0.0)
    assert main(["launch", "--hosts", "2", "--host", "1", "--head", "127.0.0.1", "--port", "1", *mistake]) == 2
    line, more = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dfl-dist: {key}: ")
    assert more == "launch: host 1 stays for 0 s at most, to tell the others"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--help"]) == 0
    assert "--head V" in capsys.readouterr().out
