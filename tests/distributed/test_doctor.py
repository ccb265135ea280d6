"""`dfl-dist launch --doctor`: what it finds between real ranks."""

from pathlib import Path

from launching import dfl_dist, run


def test_between_ranks(tmp_path: Path) -> None:
    done = run(dfl_dist("launch", "--doctor", "-n", "2"), tmp_path)
    assert done.code == 0, done.err
    assert "host 0 (" in done.out
    assert "ranks 0, 1" in done.out
    assert "  ok       within hosts   " in done.out
    assert done.out.splitlines()[-1].endswith("0 failed")
    assert list(tmp_path.iterdir()) == []
