"""Settings from the command line, YAML files and scripts: typed, the later ones count, mistakes told in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dfl_dist.config.help import TITLES
from dfl_dist.config.parse import from_script, parse
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import DEFAULTS, SETTINGS
from dfl_dist.config.values import ask, dump, values_of
from dfl_dist.data.datasets import DATASETS
from dfl_dist.errors import ConfigError
from dfl_dist.models.zoo import MODELS
from dfl_dist.sweep.grid import read_sweep
from dfl_dist.topology.kinds import KINDS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("local: {rh: 3}", "local.rh: unknown key, allowed: those of --help (did you mean local.rho?)"),
        ("local: {rho: abc}", "local.rho: given abc, allowed: a number, 0 or more | null"),
        ("local: 4", "local: given 4, allowed: a mapping"),
        ("rounds: null", "rounds: given null, allowed: a whole number, 1 or more"),
        ("local: {batch_size: null}", "local.batch_size: given null, allowed: a whole number, 0 or more"),
        ("resume: null", "resume: given null, allowed: text"),
        ("out: ''", "out: given nothing, allowed: text | null"),
        ("", "config: given FILE, which is empty or no mapping, allowed: YAML such as local: {rho: 0.2}"),
        ("- 4", "config: given FILE, which is empty or no mapping, allowed: YAML such as local: {rho: 0.2}"),
        ("rounds: 3\nseed: 1\nrounds: 4", "config: given FILE, which is no YAML: rounds stands there twice in"),
        ("local: {rho: 0.2", "config: given FILE, which is no YAML: while parsing a flow mapping"),
        (
            "grid: {seed: [0, 1]}",
            "config: given FILE, which is a grid of runs, allowed: one run's settings (dfl-dist sweep",
        ),
        ("seeds: 4", "seeds: unknown key, allowed: those of --help (did you mean seed?)"),
        ("rh: 4", "rh: unknown key, allowed: those of --help (did you mean local.rho?)"),
    ],
)
def test_a_mistake_in_yaml_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        ask(parse(["--config", str(tmp_path / "a.yaml")]))
    assert str(error.value).startswith(line.replace("FILE", str(tmp_path / "a.yaml")))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"rounds: \xff\xfe")
    with pytest.raises(ConfigError, match=r"config: given .*, which cannot be read"):
        parse(["--config", str(tmp_path / "a.yaml")])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["true"], "true: unknown key, allowed: those of --help (did you mean --dry-run, which takes no value?)"),
        (["--dry-run=true"], "dry-run: unknown key, allowed: those of --help (did you mean --dry-run, which takes"),
        (["--dry_run"], "dry_run: unknown key, allowed: those of --help (did you mean --dry-run?)"),
        (["--version"], "version: unknown key, allowed: those of --help (did you mean dfl-dist --version?)"),
        (["-n", "4"], "-n: unknown key, allowed: those of --help (did you mean dfl-dist launch -n N, or torchrun --"),
        (["-n=4"], "-n=4: unknown key, allowed: those of --help (did you mean dfl-dist launch -n N, or torchrun"),
        (["--ranks", "4"], "ranks: unknown key, allowed: those of --help (did you mean dfl-dist launch -n N, or"),
        (["a.yaml"], "a.yaml: unknown key, allowed: those of --help (did you mean --config a.yaml?)"),
    ],
)
def test_what_is_no_setting_is_told_what_it_may_have_meant(words: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(words)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("key", "word", "near"),
    [
        ("data.partition", "dirchlet", "dirichlet"),
        ("data.partition", "IID", "iid"),
        ("local.schedule", "cosin", "cosine"),
        ("rank0", "coordinater", "coordinator"),
        ("backend", "glooo", "gloo"),
        ("threads", "atuo", "auto"),
        ("rounds", "auto", None),
    ],
)
def test_the_nearest_word_is_offered(key: str, word: str, near: str | None) -> None:
    hint = f" (did you mean {near}?)" if near else ""
    with pytest.raises(ConfigError) as error:
        parse([f"--{key}", word])
    assert str(error.value) == f"{key}: given {word}, allowed: {SETTINGS[key].allowed}{hint}"


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("resolved.yaml", dump(values_of(resolve(ask({"out": "/q"})))), True),
        ("resolved.yaml", dump(values_of(resolve(ask({"out": "/q", "resume": "/q/checkpoints/round-000000"})))), True),
        ("copy.yaml", "out: /q\nresume: /q", True),
        ("own.yaml", "out: q\nresume: never", False),
        ("own.yaml", "out: null\nresume: q", False),
        ("own.yaml", "resume: q", False),
        ("resolved.yaml", "out: q", False),
        ("config.yaml", "rounds: 3", False),
    ],
)
def test_the_settings_in_force_of_a_run_do_not_go_on_inside_it(
    tmp_path: Path, name: str, text: str, refused: bool
) -> None:
    (tmp_path / name).write_text(text)
    if not refused:
        assert parse(["--config", str(tmp_path / name)])
        return
    with pytest.raises(ConfigError) as error:
        parse(["--config", str(tmp_path / name)])
    allowed = "that run's config.yaml, or a file without the two"
    given = f"{tmp_path / name}, which has the out and resume of a run"
    assert str(error.value) == f"config: given {given}, allowed: {allowed}"


def test_command_line_overrides_yaml_and_only_given_keys_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rounds: 3\nlocal: {rho: 1e-2, lr: 0.5}\n")
    given = parse(["--config", str(tmp_path / "a.yaml"), "--local.rho", "0.2", "--threads", "auto"])
    assert given == {"rounds": 3, "local.rho": 0.2, "local.lr": 0.5, "threads": "auto"}


def test_what_comes_later_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rounds: 3\nseed: 1\n")
    (tmp_path / "b.yaml").write_text("rounds: 4\n")
    files = ["--config", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"]
    assert parse([*files, "--seed=2", "--seed", "3"]) == {"rounds": 4, "seed": 3}
    assert parse(["--rounds", "9", *files]) == {"rounds": 4, "seed": 1}


@pytest.mark.parametrize(
    "given",
    [
        {"local.rho": 0.2, "local.steps": None, "deterministic": True, "out": "a folder: 1"},
        {"local": {"rho": 0.2, "steps": None}, "deterministic": True, "out": "a folder: 1"},
        {"local": {"rho": "0.2", "steps": "null"}, "deterministic": "true", "out": "a folder: 1"},
    ],
)
def test_a_script_may_nest_keys_or_not(given: dict[str, Any]) -> None:
    assert from_script(given) == {"local.rho": 0.2, "local.steps": None, "deterministic": True, "out": "a folder: 1"}


@pytest.mark.parametrize(
    ("given", "tracker"),
    [(["wandb", "a.b:c"], "wandb,a.b:c"), ("wandb,mlflow", "wandb,mlflow"), ([], None), (None, None), ("null", None)],
)
def test_trackers_are_a_list_or_names_with_commas(given: Any, tracker: str | None) -> None:
    assert from_script({"tracker": given}) == {"tracker": tracker}


def test_no_other_setting_is_a_list() -> None:
    with pytest.raises(ConfigError, match=r"rounds: given \[3\], allowed: a whole number"):
        from_script({"rounds": [3]})


REFUSED = "tensorboard: given true, allowed: false; what was true is now --tracker tensorboard"


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_older_key_of_a_tracker_is_refused_with_the_name_of_the_new_one(tmp_path: Path, value: str) -> None:
    """Wherever it is given; where it turned the tracker off, it means nothing."""
    (tmp_path / "a.yaml").write_text(f"rounds: 3\ntensorboard: {value}\n")
    grid = f"ranks: 2\nsettings: {{tensorboard: {value}}}\ngrid: {{rounds: [3, 4]}}"
    (tmp_path / "grid.yaml").write_text(grid)
    (tmp_path / "axis.yaml").write_text(f"ranks: 2\ngrid: {{tensorboard: [{value}], rounds: [3, 4]}}")
    ways: list[Callable[[], Any]] = [
        lambda: parse(["--config", str(tmp_path / "a.yaml")]),
        lambda: parse(["--rounds", "3", "--tensorboard", value]),
        lambda: from_script({"rounds": 3, "tensorboard": value == "true"}),
        lambda: dict(read_sweep(tmp_path / "grid.yaml", {}).cells[0].given),
        lambda: dict(read_sweep(tmp_path / "axis.yaml", {}).cells[0].given),
    ]
    for way in ways:
        if value == "false":
            assert way() == {"rounds": 3}
        else:
            with pytest.raises(ConfigError) as error:
                way()
            assert str(error.value).endswith(REFUSED)
    with pytest.raises(ConfigError, match="tensorboard: given nothing, allowed: false; what was true is now --tracker"):
        parse(["--tensorboard", "--rounds", "3"])


def test_a_script_may_name_a_file_or_give_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("local: {rho: 0.2}")
    assert from_script(tmp_path / "a.yaml") == from_script(str(tmp_path / "a.yaml")) == {"local.rho": 0.2}
    assert from_script(None) == from_script({}) == {}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"local.rh": 2}, "local.rh: unknown key, allowed: those of --help (did you mean local.rho?)"),
        ({"local": {"rho": "abc"}}, "local.rho: given abc, allowed: a number, 0 or more | null"),
        ([1], "config: given a list, allowed: a mapping, nested or with dotted keys, or a YAML file"),
    ],
)
def test_a_mistake_in_a_script_is_one_line(given: Any, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_script(given)
    assert str(error.value) == line


def test_quickstart_file_is_the_defaults() -> None:
    path = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
    assert ask(parse(["--config", str(path)])) == DEFAULTS


def shown_help(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_help_has_every_setting_under_its_section(capsys: pytest.CaptureFixture[str]) -> None:
    shown, title, texts = shown_help(capsys), "", dict[str, list[str]]()
    section_of: dict[str, str] = {}
    for line in shown[shown.index("") :]:  # after how to call it
        if line.startswith("  --"):
            key = line.split()[0].removeprefix("--")
            section_of[key], texts[key] = title, []
        elif line.startswith("      "):
            texts[key].append(line.strip())
        elif line.endswith(":"):
            title = line.removesuffix(":")
    names = {"data_sets": ", ".join(DATASETS), "models": ", ".join(MODELS)}
    for key, spec in SETTINGS.items():
        text = " ".join(texts[key])
        assert section_of[key] == TITLES[key.rpartition(".")[0]]
        assert spec.help.format_map(names) in text
        assert f"default: {'null' if spec.default is None else spec.default}" in text
    assert all(name in " ".join(texts["graph.kind"]) for name in KINDS)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_is_wrapped_to_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    longest = max(len(line) for line in shown_help(capsys))
    assert min(columns, 110) - 20 < longest < min(columns, 111)
