"""The settings in force: nulls filled from the algorithm's row and the defaults, and checked together."""

import pytest

from dfl_dist.algorithms.table import ALGORITHMS
from dfl_dist.config.parse import parse
from dfl_dist.config.resolve import origin, resolve
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.config.values import ask, get, values_of
from dfl_dist.errors import ConfigError


def settle(*argv: str, num_clients: int = 8) -> Config:
    return resolve(ask({"num_clients": num_clients, **parse(list(argv))}))


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
        ("--data.partition file", "data.file: given null, allowed: a partition.npz, with data.partition file"),
        ("--data.file f", "data.file: given f, allowed: null, with data.partition dirichlet (or data.partition file)"),
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
        ("--config nowhere.yaml", "config: given nowhere.yaml, which is not there"),
    ],
)
def test_a_mistake_is_one_line(argv: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        settle(*argv.split())
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_row_is_what_is_in_force_where_nothing_else_is_asked(algorithm: str) -> None:
    method, values = ALGORITHMS[algorithm], values_of(settle("--algorithm", algorithm))
    row = {
        "graph.kind": method.graph,
        "local.rho": method.rho,
        "local.momentum": method.momentum,
        "local.epochs": method.epochs,
        "local.gradient_at": method.gradient_at,
        "participation": method.participation or 1.0,
    }
    assert {key: values[key] for key in row} == row
    assert all(SETTINGS[key].default is None for key in row), "what a row fills in can be left open"


@pytest.mark.parametrize("ranks", [None, 3])
@pytest.mark.parametrize("more", [{}, {"local.steps": 3}, {"graph.kind": "erdos_renyi"}, {"graph.kind": "server"}])
def test_nothing_in_force_is_null_unless_null_means_none(ranks: int | None, more: dict[str, object]) -> None:
    for algorithm in ALGORITHMS:
        values = values_of(resolve(ask({"algorithm": algorithm, **more}), ranks))
        assert set(values) == set(SETTINGS)
        assert [key for key, value in values.items() if value is None and not SETTINGS[key].is_optional] == []


def test_clipping_is_at_10_by_default_and_off_by_0() -> None:
    assert settle().local.clip_norm == 10
    assert settle("--local.clip_norm", "0").local.clip_norm == 0
    assert settle("--local.clip_norm", "3").local.clip_norm == 3


@pytest.mark.parametrize(
    ("argv", "ranks", "clients"),
    [("", None, 8), ("", 1, 1), ("", 4, 4), ("--rank0 coordinator", 4, 3), ("--num_clients 9", 4, 9)],
)
def test_number_of_clients(argv: str, ranks: int | None, clients: int) -> None:
    assert resolve(ask(parse(argv.split())), ranks).num_clients == clients


def test_ranks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_clients: given 3, allowed: 4 or more: there are 4 ranks"):
        resolve(ask({"num_clients": 3}), 4)
    for ranks in (None, 1):
        with pytest.raises(ConfigError, match="rank0: given coordinator with 1 rank"):
            resolve(ask({"rank0": "coordinator"}), ranks)


@pytest.mark.parametrize(
    ("argv", "key", "found"),
    [
        ("--local.rho 0.2", "local.rho", "asked"),
        ("--local.rho 0.1", "local.rho", "asked"),  # though the row says so too
        ("--local.rho null", "local.rho", "algorithm"),
        ("--local.steps 3", "local.steps", "asked"),
        ("--local.steps 3", "local.epochs", "default"),  # null
        ("--seed 0", "seed", "asked"),
        ("", "seed", "default"),
        ("", "local.clip_norm", "default"),
        ("", "graph.kind", "algorithm"),
        ("--graph.file g.jsonl", "graph.kind", "graph.file"),
        ("", "graph.weights", "graph.kind"),
        ("--graph.weights auto", "graph.weights", "graph.kind"),
        ("--graph.weights out-degree", "graph.weights", "asked"),
        ("", "model.name", "data set"),
        ("--model.name digits_mlp", "model.name", "asked"),
        ("--algorithm fedavg", "participation", "algorithm"),
        ("", "participation", "default"),
        ("", "num_clients", "ranks"),
    ],
)
def test_where_a_value_comes_from(argv: str, key: str, found: str) -> None:
    given = parse(argv.split())
    config = resolve(ask(given), ranks=8)
    assert origin(key, get(config, key), given, config) == found
