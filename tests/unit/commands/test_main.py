"""`dfl-dist`: the commands by name."""

import pytest

import dfl_dist
from dfl_dist.commands.main import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_an_unknown_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithm"]) == 2
    assert "command: given algorithm" in (err := capsys.readouterr().err)
    assert err.endswith("(did you mean algorithms?)\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"dfl-dist {name}" in out
    assert max(map(len, out.splitlines())) < 80


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dfl-dist {dfl_dist.__version__}\n"
