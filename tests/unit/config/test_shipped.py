"""Configs that come with the package are found by name, from any folder."""

from pathlib import Path

import pytest

from dfl_dist.config.parse import parse
from dfl_dist.config.shipped import CONFIGS, config_names, find_config
from dfl_dist.errors import ConfigError


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("given", ["quickstart", "quickstart.yaml", "configs/quickstart.yaml"])
def test_a_config_is_found_by_its_name(given: str) -> None:
    assert parse(["--config", given]) == parse(["--config", str(CONFIGS / "quickstart.yaml")])


def test_every_config_at_the_top_is_known() -> None:
    top = Path(__file__).parents[3] / "configs"
    assert config_names() == sorted(str(path.relative_to(top))[: -len(".yaml")] for path in top.rglob("*.yaml"))
    assert {"quickstart", "paper/mnist"} <= set(config_names())


def test_the_users_own_file_goes_first() -> None:
    Path("quickstart").write_text("rounds: 7")
    assert parse(["--config", "quickstart"]) == {"rounds": 7}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^sweep: given paper/minst, which is not there, .*did you mean paper/mnist"):
        find_config("sweep", "paper/minst")


@pytest.mark.parametrize(
    ("key", "offered", "others"), [("sweep", "paper/mnist", "quickstart"), ("config", "quickstart", "paper/mnist")]
)
def test_only_what_is_then_accepted_is_offered(key: str, offered: str, others: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: a file, or ") as refused:
        find_config(key, "nosuch")
    assert offered in str(refused.value)
    assert others not in str(refused.value)


def test_a_grid_is_no_config_by_its_name_too() -> None:
    with pytest.raises(ConfigError, match=r"given paper/mnist, which is a grid .*\(dfl-dist sweep paper/mnist\)"):
        parse(["--config", "paper/mnist"])
