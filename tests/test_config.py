"""Settings: parsing, one-line refusals, rows and defaults, the two YAML files of a run."""

from pathlib import Path

import pytest

from dfl_dist import job
from dfl_dist.algorithms import ALGORITHMS
from dfl_dist.arguments import parse
from dfl_dist.cli import main as cli
from dfl_dist.config import (
    SETTINGS,
    Config,
    ConfigError,
    changed_on_resume,
    dump,
    get,
    load,
    lookup,
    replace,
)
from dfl_dist.resolve import count_clients
from dfl_dist.runtime import World
from dfl_dist.schedule import NAMES


def settle(*argv: str, num_clients: int = 8) -> Config:
    return job.settle(replace(Config(), parse(list(argv))), World(), num_clients)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ("--local.rho abc", "local.rho: given abc, allowed: a number, 0 or more | null"),
        ("--local.rho -1", "local.rho: given -1.0, allowed: a number, 0 or more | null"),
        ("--local.rho nan", "local.rho: given nan, allowed: a number, 0 or more | null"),
        ("--local.rho inf", "local.rho: given inf, allowed: a number, 0 or more | null"),
        ("--local.rho", "local.rho: given nothing, allowed: a number, 0 or more | null"),
        ("--local.rh 2", "local.rh: unknown key, allowed: those of --help (did you mean local.rho?)"),
        ("--lr 2", "lr: unknown key, allowed: those of --help (did you mean local.lr?)"),
        ("hello", "hello: unknown key, allowed: those of --help"),
        ("my.yaml", "my.yaml: unknown key, allowed: those of --help (did you mean --config my.yaml?)"),
        ("--rounds 1.5", "rounds: given 1.5, allowed: a whole number, 1 or more"),
        ("--rounds 0", "rounds: given 0, allowed: a whole number, 1 or more"),
        ("--local.step y", "local.step: given y, allowed: x | z | null"),
        ("--local.batch_size -4", "local.batch_size: given -4, allowed: a whole number, 0 or more"),
        ("--local.momentum 1", "local.momentum: given 1.0, allowed: a number, 0 or more, below 1 | null"),
        ("--timeout_s 1e15", "timeout_s: given 1000000000000000.0, allowed: a number, above 0, at most 86400"),
        ("--threads 0", "threads: given 0, allowed: a whole number, 1 or more | auto"),
        ("--threads many", "threads: given many, allowed: a whole number, 1 or more | auto"),
        ("--deterministic maybe", "deterministic: given maybe, allowed: true or false"),
        ("--local.steps 2 --local.epochs 3", "local.steps: given 2 beside local.epochs 3, allowed: only one"),
        ("--graph.out_degree 8", "graph.out_degree: given 8, allowed: 0 to 7, below the number of clients (8)"),
        ("--graph.kind file", "graph.file: given null, allowed: a file, with graph.kind file"),
        ("--graph.kind ring --graph.file f", "graph.file: given f, allowed: null, with graph.kind ring"),
        ("--algorithm fedavg --overlap 1", "overlap: given 1, allowed: 0, with graph.kind server"),
        (
            "--graph.kind server --graph.gossip_steps 2",
            "graph.gossip_steps: given 2, allowed: 1, with graph.kind server",
        ),
        ("--algorithm fedavg --graph.static true", "graph.static: given True, allowed: False, with graph.kind server"),
        ("--participation 0.5", "participation: given 0.5, allowed: 1.0, with graph.kind random_directed"),
        ("--server_lr 0.5", "server_lr: given 0.5, allowed: 1.0, with graph.kind random_directed"),
        ("--graph.weights metropolis", "graph.weights: given metropolis, allowed: auto or out-degree, with graph.kind"),
        (
            "--graph.kind server --graph.weights out-degree",
            "graph.weights: given out-degree, allowed: auto, with graph",
        ),
        ("--graph.kind rng", "graph.kind: given rng, allowed: random_directed, random_symmetric, by_loss, ring,"),
        ("--graph.p 1.5", "graph.p: given 1.5, allowed: a number, 0 to 1 | null"),
        ("--overlap -1", "overlap: given -1, allowed: a whole number, 0 or more"),
        ("--participation 0", "participation: given 0.0, allowed: a number, above 0, at most 1 | null"),
        ("--config nowhere.yaml", "config: File does not exist: "),
    ],
)
def test_a_mistake_is_one_line(argv: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        settle(*argv.split())
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


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
        ("local: {rho: 0.2", "config: given FILE, which is no YAML: while parsing a flow mapping"),
        ("seeds: 4", "seeds: unknown key, allowed: those of --help (did you mean seed?)"),
    ],
)
def test_a_mistake_in_yaml_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        replace(Config(), parse(["--config", str(tmp_path / "a.yaml")]))
    assert str(error.value).startswith(line.replace("FILE", str(tmp_path / "a.yaml")))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"rounds: \xff\xfe")
    with pytest.raises(ConfigError, match=r"config: given .*, which cannot be read"):
        parse(["--config", str(tmp_path / "a.yaml")])


def test_command_line_overrides_yaml_and_only_given_keys_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rounds: 3\nlocal: {rho: 1e-2, lr: 0.5}\n")
    given = parse(["--config", str(tmp_path / "a.yaml"), "--local.rho", "0.2", "--threads", "auto"])
    assert given == {"rounds": 3, "local.rho": 0.2, "local.lr": 0.5, "threads": "auto"}


def test_null_takes_the_row_then_the_default() -> None:
    plain = settle()
    assert (plain.local.rho, plain.local.momentum, plain.local.epochs) == (0.1, 0.9, 5)
    assert (plain.graph.kind, plain.graph.out_degree, plain.local.step) == ("random_directed", 3, "x")
    assert settle("--algorithm", "sgp").local.epochs == 1
    assert settle("--algorithm", "sgp", "--local.rho", "0.3").local.rho == 0.3
    assert settle("--local.steps", "9").local.epochs is None
    assert settle(num_clients=2).graph.out_degree == 1
    assert settle(num_clients=1).graph.out_degree == 0
    assert settle("--graph.file", "f").graph.kind == "file"
    assert settle("--overlap", "1").local.step == "z", "x ruins the training there"
    assert settle("--overlap", "1", "--local.step", "x").local.step == "x"
    assert settle("--algorithm", "asyng").local.gradient_at == "round"
    assert settle("--algorithm", "asyng", "--local.gradient_at", "step").local.gradient_at == "step"


def test_the_graph_decides_what_else_is_in_force() -> None:
    assert settle().graph.weights == "out-degree"
    assert settle("--algorithm", "dfedsam").graph.weights == "metropolis"
    assert settle("--algorithm", "dfedsam", "--graph.kind", "directed_ring").graph.weights == "out-degree"
    assert settle("--algorithm", "dfedsam", "--graph.weights", "out-degree").graph.weights == "out-degree"
    assert settle("--graph.kind", "erdos_renyi", "--graph.out_degree", "2", num_clients=5).graph.p == 0.5
    assert settle("--graph.kind", "erdos_renyi", num_clients=1).graph.p == 0
    assert (settle().graph.p, settle("--graph.kind", "erdos_renyi", "--graph.p", "0.1").graph.p) == (None, 0.1)
    assert (settle().participation, settle("--algorithm", "fedavg").participation) == (1.0, 0.1)
    assert settle("--algorithm", "fedavg", "--graph.kind", "ring").participation == 1.0, "all train without a server"
    assert settle("--graph.kind", "server").participation == 1.0
    assert settle("--algorithm", "fedavg", "--participation", "0.3").participation == 0.3


def test_every_row_fills_only_keys_that_can_be_null() -> None:
    for row in ALGORITHMS.values():
        assert all(SETTINGS[key].default is None for key in row)
        for key, value in row.items():
            assert get(replace(Config(), {key: value}), key) == value


@pytest.mark.parametrize(
    ("argv", "world_size", "torchrun", "clients"),
    [("", 1, False, 8), ("", 4, True, 4), ("--rank0 coordinator", 4, True, 3), ("--num_clients 9", 4, True, 9)],
)
def test_number_of_clients(argv: str, world_size: int, torchrun: bool, clients: int) -> None:
    assert count_clients(replace(Config(), parse(argv.split())), world_size, torchrun) == clients


def test_ranks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_clients: given 3, allowed: 4 or more: there are 4 ranks"):
        count_clients(Config(num_clients=3), 4, True)
    with pytest.raises(ConfigError, match="rank0: given coordinator with 1 rank"):
        count_clients(Config(rank0="coordinator"), 1, True)


def test_dump_and_load_keep_nulls(tmp_path: Path) -> None:
    asked = replace(Config(), {"rounds": 7, "local.steps": 3, "out": "x"})
    (tmp_path / "config.yaml").write_text(dump(asked, without=("out", "resume")))
    assert "out:" not in (tmp_path / "config.yaml").read_text()
    assert load(tmp_path / "config.yaml") == replace(asked, {"out": None})
    given = parse(["--config", str(tmp_path / "config.yaml")])
    assert replace(Config(), given) == replace(asked, {"out": None}), "the file repeats the run"
    assert given["local.rho"] is None
    (tmp_path / "resolved.yaml").write_text(dump(settle()))
    assert load(tmp_path / "resolved.yaml") == settle()


def test_what_may_change_on_resume() -> None:
    free = {"rounds": 99, "timeout_s": 1.0, "backend": "gloo", "device": "cpu", "threads": 2, "eval.every": 9}
    assert changed_on_resume(settle(), replace(settle(), free | {"checkpoint.keep": 9})) == []
    fixed = {"seed": 1, "local.lr": 0.5, "num_clients": 9, "model.name": "a:b", "dtype": "float64", "window": 2}
    assert sorted(changed_on_resume(settle(), replace(settle(), fixed))) == sorted(fixed)


def test_lookup_by_name_and_by_import_path() -> None:
    registry = {"plain": dump}
    assert lookup("model.name", "plain", registry) is dump
    assert lookup("model.name", "dfl_dist.config:load", registry) is load
    with pytest.raises(
        ConfigError, match=r"given plan, allowed: plain or package.module:name \(did you mean plain\?\)"
    ):
        lookup("model.name", "plan", registry)
    for path in ("nowhere:x", ":x", ".a:b", "dfl_dist.config:nothing"):
        with pytest.raises(ConfigError, match=rf"model\.name: given {path}, which cannot be imported"):
            lookup("model.name", path, registry)


def test_quickstart_file_is_the_defaults() -> None:
    path = Path(__file__).parent.parent / "configs" / "quickstart.yaml"
    assert replace(Config(), parse(["--config", str(path)])) == Config()


def test_help_has_a_line_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out.splitlines()
    for key, spec in SETTINGS.items():
        line = next(line for line in shown if line.startswith(f"  --{key} "))
        assert spec.metadata["help"] in line
        assert f"default: {'null' if spec.default is None else spec.default}" in line
    kinds = next(line for line in shown if line.startswith("  --graph.kind "))
    assert all(name in kinds for name in NAMES)


def test_algorithms_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["algorithms"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("algorithm", "graph.kind", "local.rho", "local.momentum", "local.epochs", "local.gradient_at"),
        *("participation", "mixing"),
    ]
    # The table of the paper's methods, to the letter.
    assert [row.split()[:7] for row in rows] == [
        ["dfedsgpsm", "random_directed", "0.1", "0.9", "5", "step", "-"],
        ["dfedsgpsm-s", "by_loss", "0.1", "0.9", "5", "step", "-"],
        ["dfedsgpm", "random_directed", "0.0", "0.9", "5", "step", "-"],
        ["osgp", "random_directed", "0.0", "0.0", "5", "step", "-"],
        ["sgp", "random_directed", "0.0", "0.0", "1", "step", "-"],
        ["asyng", "by_loss", "0.0", "0.0", "5", "round", "-"],
        ["dfedsam", "random_symmetric", "0.25", "0.0", "5", "step", "-"],
        ["dfedavgm", "random_symmetric", "0.0", "0.9", "5", "step", "-"],
        ["dfedavg", "random_symmetric", "0.0", "0.0", "5", "step", "-"],
        ["d-psgd", "random_symmetric", "0.0", "0.0", "1", "step", "-"],
        ["fedavg", "server", "0.0", "0.0", "5", "step", "0.1"],
    ]
    mixings = [" ".join(row.split()[7:]) for row in rows]
    assert mixings == ["push-sum, out-degree weights"] * 6 + ["push-sum, metropolis weights"] * 4 + ["server average"]
    assert cli(["algorithm"]) == 2
    assert "did you mean algorithms?" in capsys.readouterr().err
