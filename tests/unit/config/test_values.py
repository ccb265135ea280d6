"""Settings as values: asked for and in force, the two YAML files of a run, what may change when it is resumed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dfl_dist.config.parse import parse
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import DEFAULTS, SETTINGS
from dfl_dist.config.values import (
    RESUMABLE,
    ask,
    changed_on_resume,
    dump,
    format_value,
    get,
    load_asked,
    load_resolved,
    make_config,
    replace,
    values_of,
)
from dfl_dist.errors import ConfigError


def test_what_is_asked_for_has_every_key_and_what_is_given_on_top() -> None:
    assert ask({}) == DEFAULTS
    assert ask({"rounds": 7}, before=ask({"rounds": 5, "seed": 2})) == DEFAULTS | {"rounds": 7, "seed": 2}


def test_a_config_holds_its_values_by_dotted_key() -> None:
    config = resolve(ask({"local.rho": 0.7}))
    values = values_of(config)
    assert list(values) == list(SETTINGS)
    assert get(config, "local.rho") == config.local.rho == values["local.rho"] == 0.7
    assert make_config(values) == config
    changed = replace(config, {"local.rho": 0.1, "seed": 3})
    assert values_of(changed) == values | {"local.rho": 0.1, "seed": 3}
    assert config.local.rho == 0.7


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("local.rho", None, "local.rho: given null, allowed: a number, 0 or more | null"),
        ("rounds", 0, "rounds: given 0, allowed: a whole number, 1 or more"),
        ("resume", "", "resume: given nothing, allowed: text"),
    ],
)
def test_a_config_cannot_have_what_cannot_be_in_force(key: str, value: object, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(resolve(ask({})), {key: value})
    assert str(error.value) == line


@pytest.mark.parametrize(("value", "text"), [(None, "null"), (True, "true"), (0.1, "0.1"), ("a", "a")])
def test_a_value_is_written_as_in_yaml(value: object, text: str) -> None:
    assert format_value(value) == text


# The two YAML files.


def test_dump_and_load_keep_nulls(tmp_path: Path) -> None:
    asked = ask({"rounds": 7, "local.steps": 3, "out": "x"})
    (tmp_path / "config.yaml").write_text(dump(asked, without=("out", "resume")))
    assert "out:" not in (tmp_path / "config.yaml").read_text()
    assert load_asked(tmp_path / "config.yaml") == asked | {"out": None}
    given = parse(["--config", str(tmp_path / "config.yaml")])
    assert ask(given) == asked | {"out": None}, "the file repeats the run"
    assert given["local.rho"] is None
    resolved = resolve(ask({}))
    (tmp_path / "resolved.yaml").write_text(dump(values_of(resolved)))
    assert load_resolved(tmp_path / "resolved.yaml") == resolved


def test_null_for_clip_norm_was_off_in_a_run_and_is_not_given_in_what_was_asked(tmp_path: Path) -> None:
    """Runs from before 0 meant off have null in both files."""
    values = values_of(resolve(ask({}))) | {"local.clip_norm": None}
    (tmp_path / "resolved.yaml").write_text(dump(values))
    assert load_resolved(tmp_path / "resolved.yaml").local.clip_norm == 0
    (tmp_path / "config.yaml").write_text(dump(DEFAULTS | {"local.clip_norm": None}))
    assert load_asked(tmp_path / "config.yaml")["local.clip_norm"] is None


@pytest.mark.parametrize(("value", "tracker"), [("true", "tensorboard"), ("false", None)])
def test_the_older_key_of_a_tracker_is_read_from_a_run(tmp_path: Path, value: str, tracker: str | None) -> None:
    text = dump(values_of(resolve(ask({}))))
    assert text.count("tracker: null\n") == 1
    (tmp_path / "run.yaml").write_text(text.replace("tracker: null\n", f"tensorboard: {value}\n"))
    assert load_asked(tmp_path / "run.yaml")["tracker"] == tracker
    assert load_resolved(tmp_path / "run.yaml") == resolve(ask({"tracker": tracker}))


@pytest.mark.parametrize("load", [load_asked, load_resolved])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty or no mapping"),
        ("- 3", "empty or no mapping"),
        ("local: {rho", "ParserError: while parsing a flow mapping"),
        ("local: {rh: 0.1}", "key: given local.rh, allowed: known settings (did you mean local.rho?)"),
        ("rounds: 0", "rounds: given 0, allowed: a whole number, 1 or more"),
        ("rounds: [3]", ""),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, load: Callable[[Path], object], text: str, reason: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: not the settings of a run: {reason}")


# Resuming.


def test_what_may_change_on_resume() -> None:
    before = values_of(resolve(ask({})))
    free = {"rounds": 99, "timeout_s": 1.0, "backend": "gloo", "device": "cpu", "threads": 2, "eval.every": 9}
    free |= {"max_seconds": 60.0, "stop.target": 0.9, "stop.patience": 3, "report": False, "tracker": "wandb"}
    assert changed_on_resume(before, before | free | {"checkpoint.keep": 9}) == []
    fixed = {
        "seed": 1,
        "local.lr": 0.5,
        "num_clients": 9,
        "model.name": "a:b",
        "dtype": "float64",
        "window": 2,
        "data.alpha": 0.9,
        "data.file": "partition.npz",
        "local.schedule": "cosine",
        "local.warmup_rounds": 3,
    }
    assert sorted(changed_on_resume(before, before | fixed)) == sorted(fixed)


def test_the_guide_says_what_may_change_on_resume() -> None:
    guide = (Path(__file__).parents[3] / "launch" / "README.md").read_text()
    sentence = guide.partition("On resume these may change:")[2].partition("Anything else")[0]
    assert {word.removesuffix(".*") for word in re.findall(r"`([\w.*]+)`", sentence)} == set(RESUMABLE)
