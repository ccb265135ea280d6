"""Who reads a data set: one rank of each host decodes it, the others share what it left; nobody waits for ever."""

from pathlib import Path

import tiny_sets
from launching import ranks, run


def test_one_rank_of_a_host_decodes_for_all(tmp_path: Path) -> None:
    tiny_sets.make("mnist", tmp_path / "root")
    arguments = ("--data.name", "mnist", "--data.root", str(tmp_path / "root"), "--rounds", "1", "--report", "false")
    done = run(ranks(4, "rank_programs:tell_who_decoded", *arguments, "--out", str(tmp_path / "run")), tmp_path)
    assert done.code == 0, done.err
    assert sorted(line for line in done.out.splitlines() if line.startswith("rank ")) == [
        "rank 0 decoded",
        "rank 1 mapped",
        "rank 2 mapped",
        "rank 3 mapped",
    ]


def test_each_host_decodes_for_itself(tmp_path: Path) -> None:
    """Ranks 2 and 3 as if on another host, with another disk."""
    for host in (tmp_path, tmp_path / "host-b"):
        tiny_sets.make("mnist", host / "root")
    arguments = ("--data.name", "mnist", "--data.root", "root", "--rounds", "1", "--report", "false")
    done = run(ranks(4, "rank_programs:tell_who_decoded_on_two_hosts", *arguments), tmp_path)
    assert done.code == 0, done.err
    assert sorted(line for line in done.out.splitlines() if line.startswith("rank ")) == [
        "rank 0 decoded",
        "rank 1 mapped",
        "rank 2 decoded",
        "rank 3 mapped",
    ]


def test_others_do_not_wait_for_ever_for_the_one_that_decodes(tmp_path: Path) -> None:
    done = run(ranks(2, "rank_programs:slow_loader_is_named"), tmp_path)
    assert done.code == 0, done.err
    slow = ("--data.name", "own_project:late", "--model.name", "own_project:tiny")
    done = run(ranks(2, "rank_programs:impatient", *slow), tmp_path)
    assert done.code == 1
    assert "[rank 1] waited for rank 0 to plan the run: nothing came within 2 s" in done.err
