"""Every setting of a run: its type, its help line and its check (`arguments.py` reads them)."""

import dataclasses
import difflib
import importlib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

T = TypeVar("T")

# Keys that may differ between a run and its continuation; everything else is part of what the run is.
RESUMABLE = (
    *("rounds", "timeout_s", "backend", "device", "threads", "out", "resume", "eval", "checkpoint"),
    *("report", "tensorboard", "data.root", "data.download"),
)
LONGEST_TIMEOUT_S = 86400.0
DEFAULT_CLIENTS = 8  # hosted by one process when there is no torchrun


class ConfigError(ValueError):
    """A user's mistake, told in one line: the key, what was given, what is allowed."""


def refusal(key: str, given: object, allowed: str, known: Iterable[str] = ()) -> ConfigError:
    """The one shape of a refusal; `known` are names among which the nearest is offered."""
    near = difflib.get_close_matches(str(given), list(known), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return ConfigError(f"{key}: given {given}, allowed: {allowed}{hint}")


@dataclass(frozen=True)
class Check:
    """What a value may be, in words and as a test."""

    allowed: str
    passes: Callable[[Any], bool]


def at_least(low: float) -> Check:
    return Check(f"{low:g} or more", lambda value: bool(low <= value < float("inf")))


def above(low: float) -> Check:
    return Check(f"above {low:g}", lambda value: bool(low < value < float("inf")))


def up_to(high: float) -> Check:
    return Check(f"above 0, at most {high:g}", lambda value: bool(0 < value <= high))


def fraction() -> Check:
    return Check("0 or more, below 1", lambda value: bool(0 <= value < 1))


def share() -> Check:
    return Check("0 to 1", lambda value: bool(0 <= value <= 1))


def setting(default: T, text: str, check: Check | None = None) -> T:
    """A dataclass field with its help line and its check."""
    return field(default=default, metadata={"help": text, "check": check})


@dataclass(frozen=True)
class Data:
    name: str = setting(
        "digits", "data set: digits, mnist, fashion_mnist, cifar10, cifar100, or package.module:function"
    )
    root: str = setting("data", "folder that has the data sets, as torchvision lays them out")
    download: bool = setting(False, "fetch the data set to data.root if it is not there")
    limit: int = setting(0, "train on the first so many samples only; 0 is all", at_least(0))
    partition: Literal["iid", "dirichlet", "shards"] = setting(
        "dirichlet", "how the training set is divided over the clients"
    )
    alpha: float = setting(0.3, "Dirichlet concentration; small is heterogeneous", above(0))
    classes_per_client: int = setting(2, "classes that a client's shard holds, with partition shards", at_least(1))
    augment: bool = setting(False, "crop (after padding by 4) and mirror training images by chance, each its own way")


@dataclass(frozen=True)
class Model:
    name: str = setting(
        "auto",
        "model: digits_mlp, mnist_2nn, cifar_cnn, resnet18_gn, or package.module:function; auto is the data set's own",
    )
    init: str | None = setting(None, "a state_dict to start from, such as another run's model.pt")


@dataclass(frozen=True)
class Local:
    epochs: int | None = setting(None, "local epochs a round (null: the algorithm's)", at_least(1))
    steps: int | None = setting(None, "local steps a round, instead of epochs", at_least(1))
    batch_size: int = setting(32, "mini-batch size; 0 is the whole shard", at_least(0))
    lr: float = setting(0.03, "learning rate of round 0", at_least(0))
    lr_decay: float = setting(0.998, "factor on the learning rate each round", up_to(1))
    momentum: float | None = setting(None, "momentum alpha (null: the algorithm's)", fraction())
    rho: float | None = setting(None, "SAM radius; 0 is the plain gradient (null: the algorithm's)", at_least(0))
    step: Literal["x", "z"] | None = setting(
        None, "x: the paper's step; z: scaled by w, so that z moves by lr*v (null: x, and z with overlap)"
    )
    gradient_at: Literal["step", "round"] | None = setting(
        None, "step: each gradient at the current z; round: all of a round at its first z (null: the algorithm's)"
    )
    weight_decay: float = setting(0.0, "weight decay at z, after clipping", at_least(0))
    clip_norm: float | None = setting(None, "clip the gradient's norm to this (null: off)", above(0))


@dataclass(frozen=True)
class Graph:
    kind: str | None = setting(
        None,
        "who pushes to whom each round: random_directed, random_symmetric, by_loss, ring, directed_ring, grid, "
        "exponential, one_peer_exponential, erdos_renyi, full, file, server (null: the algorithm's)",
    )
    out_degree: int | None = setting(
        None, "out-neighbours of a client, itself not counted (null: min(3, clients - 1))", at_least(0)
    )
    weights: Literal["auto", "out-degree", "metropolis"] = setting(
        "auto",
        "how a client's mass is shared; auto: metropolis if the kind is symmetric, a file's own, else out-degree",
    )
    static: bool = setting(False, "keep the graph of round 0 for all rounds")
    p: float | None = setting(
        None, "erdos_renyi: how likely an edge is (null: as makes out_degree edges a client on average)", share()
    )
    file: str | None = setting(None, "graphs for kind file: a line of JSON a round, as in topology.jsonl, repeated")
    gossip_steps: int = setting(1, "exchanges a round, all on the round's graph", at_least(1))


@dataclass(frozen=True)
class Eval:
    every: int = setting(5, "evaluate the mean model every so many rounds; the last round always is", at_least(1))
    clients_every: int = setting(0, "evaluate every client's own model every so many rounds; 0 is never", at_least(0))


@dataclass(frozen=True)
class Checkpoint:
    every: int = setting(10, "checkpoint every so many rounds, and rounds 0 and last; 0 is off", at_least(0))
    keep: int = setting(3, "keep the newest so many checkpoints; 0 keeps all", at_least(0))


@dataclass(frozen=True)
class Config:
    algorithm: str = setting("dfedsgpsm", "method: a row of `dfl-dist algorithms`")
    rounds: int = setting(30, "communication rounds", at_least(1))
    num_clients: int | None = setting(
        None, f"clients (null: one a rank; {DEFAULT_CLIENTS} without torchrun)", at_least(1)
    )
    participation: float | None = setting(
        None, "part of the clients that train in a round of graph.kind server (null: the algorithm's, or all)", up_to(1)
    )
    server_lr: float = setting(1.0, "step of graph.kind server from the old model to the average", above(0))
    overlap: int = setting(
        0, "rounds that pushed models are under way while the clients train on; 0 waits for them", at_least(0)
    )
    seed: int = setting(0, "seed of every random stream", at_least(0))
    out: str | None = setting(None, "run folder (null: the next free runs/<algorithm>-<data>-<NNN>)")
    resume: str = setting("auto", "auto: when the same job starts again; never; or a run or checkpoint folder")
    rank0: Literal["client", "coordinator"] = setting(
        "client", "coordinator: rank 0 hosts no client and only samples the graph"
    )
    backend: Literal["auto", "gloo", "nccl"] = setting(
        "auto", "what carries the frames; auto: nccl with a GPU for each rank, else gloo"
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: a GPU where there is one")
    threads: int | Literal["auto"] = setting(1, "CPU threads a rank; auto divides the host's cores", at_least(1))
    window: int = setting(4, "receives posted ahead at a time, for each exchange under way", at_least(1))
    dtype: Literal["float32", "float64"] = setting("float32", "precision of the model and the frames")
    deterministic: bool = setting(False, "deterministic CUDA algorithms")
    timeout_s: float = setting(
        300.0, "longest wait for another rank, in seconds; longer than a round takes", up_to(LONGEST_TIMEOUT_S)
    )
    report: bool = setting(True, "write report.html, and report.png, at the end of the run")
    tensorboard: bool = setting(False, "write events for TensorBoard into the run folder")
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    local: Local = field(default_factory=Local)
    graph: Graph = field(default_factory=Graph)
    eval: Eval = field(default_factory=Eval)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def __post_init__(self) -> None:
        for key, spec in SETTINGS.items():
            check: Check | None = spec.metadata["check"]
            value = get(self, key)
            if (value is None and not nullable(spec)) or value == "":
                raise refusal(key, "nothing" if value == "" else "null", allowed(spec))
            if check and value is not None and not isinstance(value, str) and not check.passes(value):
                raise refusal(key, value, allowed(spec))
        if self.local.steps is not None and self.local.epochs is not None:
            raise ConfigError(
                f"local.steps: given {self.local.steps} beside local.epochs {self.local.epochs}, allowed: only one"
            )
        if self.graph.file is None and self.graph.kind == "file":
            raise refusal("graph.file", "null", "a file, with graph.kind file")
        if self.graph.file is not None and self.graph.kind not in (None, "file"):
            raise refusal("graph.file", self.graph.file, f"null, with graph.kind {self.graph.kind}")


def walk(section: type) -> dict[str, "dataclasses.Field[Any]"]:
    """The dotted keys of a section and the field behind each."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for entry in dataclasses.fields(section):
        if dataclasses.is_dataclass(entry.type):
            assert isinstance(entry.type, type)
            found |= {f"{entry.name}.{key}": spec for key, spec in walk(entry.type).items()}
        else:
            found[entry.name] = entry
    return found


SETTINGS = walk(Config)


def nullable(spec: "dataclasses.Field[Any]") -> bool:
    return type(None) in get_args(spec.type)


def allowed(spec: "dataclasses.Field[Any]") -> str:
    """What a setting may be, in words."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    options = get_args(spec.type) if get_origin(spec.type) in (Union, types.UnionType) else (spec.type,)
    parts: list[str] = []
    for option in options:
        if get_origin(option) is Literal:
            parts += get_args(option)
        elif option is not type(None):
            check: Check | None = spec.metadata["check"]
            parts.append(words[option] + (f", {check.allowed}" if check else ""))
    return " | ".join(parts) + (" | null" if nullable(spec) else "")


def get(config: Config, key: str) -> Any:
    """The value behind a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def known(value: T | None) -> T:
    """A value that is there by now, for instance because `resolve` has filled it in."""
    assert value is not None
    return value


def lookup(key: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of a registry, or what the import path `package.module:name` leads to."""
    if name in registry:
        return registry[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise refusal(key, name, ", ".join(registry) + " or package.module:name", registry)
    try:
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    except Exception as error:  # whatever the user's module does when it is imported
        raise ConfigError(f"{key}: given {name}, which cannot be imported: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def choose(key: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of a registry that takes no import paths."""
    if name not in registry:
        raise refusal(key, name, ", ".join(registry), registry)
    return registry[name]


def from_mapping(values: Mapping[str, Any]) -> Config:
    """A config from nested mappings that hold exactly the known keys, or fewer."""

    def build(section: Any, given: Mapping[str, Any]) -> Any:
        sections = {f.name: f.type for f in dataclasses.fields(section) if dataclasses.is_dataclass(f.type)}
        return section(
            **{name: build(sections[name], value) if name in sections else value for name, value in given.items()}
        )

    config: Config = build(Config, values)
    return config


def replace(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with some dotted keys changed."""
    nested = dataclasses.asdict(config)
    for key, value in values.items():
        *path, last = key.split(".")
        section = nested
        for part in path:
            section = section[part]
        section[last] = value
    return from_mapping(nested)


def word(value: object) -> str:
    """A value as it stands in YAML and on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def changed_on_resume(old: Config, new: Config) -> list[str]:
    """The keys that a continuation changes though it must not."""
    fixed = [key for key in SETTINGS if not {key, key.split(".")[0]} & set(RESUMABLE)]
    return [key for key in fixed if get(old, key) != get(new, key)]


def dump(config: Config, *, without: tuple[str, ...] = ()) -> str:
    """The config as YAML, nulls kept."""
    values = {key: value for key, value in dataclasses.asdict(config).items() if key not in without}
    return yaml.safe_dump(values, sort_keys=False)


def load(path: Path) -> Config:
    """Read a file with what `dump` gave."""
    try:
        return from_mapping(yaml.safe_load(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not the settings of a run: {one_line(error)}") from error
