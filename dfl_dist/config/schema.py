"""Every setting of a run: its type, its default, its help line and its check."""

import dataclasses
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.topology.kinds import KINDS

LONGEST_TIMEOUT_S = 86400.0
DEFAULT_CLIENTS = 8  # hosted by one process when there is no torchrun


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


def below_one() -> Check:
    return Check("0 or more, below 1", lambda value: bool(0 <= value < 1))


def fraction() -> Check:
    return Check("0 to 1", lambda value: bool(0 <= value <= 1))


def setting(default: Any, text: str, check: Check | None = None) -> Any:
    """A field of the config with its default, its help line and its check.

    A default of None means "not given": the algorithm's row fills it in, or the run itself does (`resolve`). The type
    is that of the value in force, so it is optional only where null means "none".
    """
    return field(metadata={"default": default, "help": text, "check": check})


@dataclass(frozen=True, kw_only=True)
class Data:
    name: str = setting("digits", "data set: a built-in one ({data_sets}) or package.module:function")
    root: str = setting("data", "folder that has the data sets, as torchvision lays them out")
    download: bool = setting(False, "fetch the data set to data.root if it is not there")
    limit: int = setting(0, "train on only the first N samples; 0 is all", at_least(0))
    partition: Literal["iid", "dirichlet", "shards", "file"] = setting(
        "dirichlet", "how the training set is divided over the clients"
    )
    file: str | None = setting(None, "who holds what, with partition file: a partition.npz, such as another run's")
    alpha: float = setting(0.3, "Dirichlet concentration; small is heterogeneous", above(0))
    classes_per_client: int = setting(2, "classes per client, with partition shards", at_least(1))
    augment: bool = setting(False, "randomly crop (after padding by 4) and mirror each training image")


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str = setting(
        "auto",
        "model: a built-in one ({models}) or package.module:function; auto is the data set's own",
    )
    init: str | None = setting(None, "a state_dict to start from, such as another run's model.pt")


@dataclass(frozen=True, kw_only=True)
class Local:
    epochs: int | None = setting(None, "local epochs per round (null: the algorithm's)", at_least(1))
    steps: int | None = setting(None, "local steps per round, instead of epochs", at_least(1))
    batch_size: int = setting(32, "mini-batch size; 0 is the whole shard", at_least(0))
    lr: float = setting(0.03, "learning rate of the first round", at_least(0))
    schedule: Literal["exponential", "cosine", "constant"] = setting(
        "exponential", "the rate of round t: lr*lr_decay^t; lr*(1 + cos(pi*t/rounds))/2; lr"
    )
    lr_decay: float = setting(0.998, "factor on the learning rate per round, with schedule exponential", up_to(1))
    warmup_rounds: int = setting(0, "rounds in which the rate grows to that, by equal steps; 0 is none", at_least(0))
    momentum: float = setting(None, "momentum alpha (null: the algorithm's)", below_one())
    rho: float = setting(None, "SAM radius; 0 is the plain gradient (null: the algorithm's)", at_least(0))
    step: Literal["x", "z"] = setting(
        None, "x: the paper's step; z: scaled by w, so that z moves by lr*v (null: x, and z with overlap)"
    )
    gradient_at: Literal["step", "round"] = setting(
        None, "step: each gradient at the current z; round: all of a round at its first z (null: the algorithm's)"
    )
    weight_decay: float = setting(0.0, "weight decay at z, after clipping", at_least(0))
    clip_norm: float = setting(
        None, "clip the gradient's norm to this; 0 is off, as the paper has it (null: 10)", at_least(0)
    )


@dataclass(frozen=True, kw_only=True)
class Graph:
    kind: str = setting(None, f"who pushes to whom each round: {', '.join(KINDS)} (null: the algorithm's)")
    out_degree: int = setting(
        None, "out-neighbours per client, itself not counted (null: min(3, clients - 1))", at_least(0)
    )
    weights: Literal["auto", "out-degree", "metropolis"] = setting(
        "auto",
        "how a client's mass is shared; auto: metropolis if the kind is symmetric, a file's own, else out-degree",
    )
    static: bool = setting(False, "keep the first round's graph for all rounds")
    p: float | None = setting(
        None,
        "erdos_renyi: probability of an edge (null: out_degree edges per client on average)",
        fraction(),
    )
    file: str | None = setting(None, "graphs for kind file: one line of JSON per round, as in topology.jsonl, repeated")
    gossip_steps: int = setting(1, "exchanges per round, all on the round's graph", at_least(1))


@dataclass(frozen=True, kw_only=True)
class Eval:
    every: int = setting(5, "evaluate the mean model every N rounds; the last round always is", at_least(1))
    clients_every: int = setting(0, "evaluate every client's own model every N rounds; 0 is never", at_least(0))


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    every: int = setting(10, "checkpoint every N rounds, before the first and after the last; 0 is off", at_least(0))
    keep: int = setting(3, "keep the newest N checkpoints; 0 keeps all", at_least(0))


@dataclass(frozen=True, kw_only=True)
class Stop:
    target: float | None = setting(
        None, "end the run when the mean model's test accuracy reaches this, such as 0.95 (null: never)", up_to(1)
    )
    patience: int | None = setting(
        None, "end the run after N evaluations in a row without a better test accuracy (null: never)", at_least(1)
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings in force. What was asked for is a mapping from dotted keys to values (`values.asked`)."""

    algorithm: str = setting("dfedsgpsm", "method: a row of `dfl-dist algorithms`")
    rounds: int = setting(30, "communication rounds", at_least(1))
    num_clients: int = setting(None, f"clients (null: one per rank; {DEFAULT_CLIENTS} without torchrun)", at_least(1))
    participation: float = setting(
        None,
        "fraction of the clients that train per round of graph.kind server (null: the algorithm's)",
        up_to(1),
    )
    server_lr: float = setting(1.0, "step of graph.kind server from the old model to the average", above(0))
    overlap: int = setting(
        0, "rounds that pushed models are in flight while the clients train on; 0 waits for them", at_least(0)
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
    threads: int | Literal["auto"] = setting(1, "CPU threads per rank; auto divides the host's cores", at_least(1))
    window: int = setting(4, "receives posted ahead at a time, per exchange in flight", at_least(1))
    dtype: Literal["float32", "float64"] = setting("float32", "precision of the model and the frames")
    deterministic: bool = setting(False, "deterministic CUDA algorithms")
    timeout_s: float = setting(
        300.0, "longest wait for another rank, in seconds; longer than a round takes", up_to(LONGEST_TIMEOUT_S)
    )
    max_seconds: float | None = setting(
        None,
        "stop cleanly, with a checkpoint, after the round in which so many seconds are over (null: none)",
        above(0),
    )
    report: bool = setting(True, "write report.html, and report.png, at the end of the run")
    tracker: str | None = setting(
        None, "who is told of the run: tensorboard, wandb, mlflow or package.module:function; several with commas"
    )
    data: Data
    model: Model
    local: Local
    graph: Graph
    eval: Eval
    checkpoint: Checkpoint
    stop: Stop

    def __post_init__(self) -> None:
        for key, spec in SETTINGS.items():
            value: Any = self
            for part in key.split("."):
                value = getattr(value, part)
            spec.check_value(value, may_be_null=spec.is_optional)


@dataclass(frozen=True)
class Setting:
    """One setting by its dotted key: the type in force, the default of what is asked, help, check."""

    key: str
    type: Any
    default: Any
    help: str
    check: Check | None

    @property
    def is_optional(self) -> bool:
        """Whether null is a value in force: "none"."""
        return type(None) in get_args(self.type)

    @property
    def asked_type(self) -> Any:
        """The type of what may be asked: null too where that means "not given"."""
        return self.type | None if self.default is None else self.type

    @property
    def options(self) -> tuple[Any, ...]:
        """The types among which the value has one."""
        return get_args(self.type) if get_origin(self.type) in (Union, types.UnionType) else (self.type,)

    @property
    def names(self) -> list[str]:
        """The values that are words to choose from."""
        return [name for option in self.options if get_origin(option) is Literal for name in get_args(option)]

    @property
    def allowed(self) -> str:
        """What may be asked, in words."""
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        parts: list[str] = []
        for option in self.options:
            if get_origin(option) is Literal:
                parts += get_args(option)
            elif option is not type(None):
                parts.append(words[option] + (f", {self.check.allowed}" if self.check else ""))
        return " | ".join(parts) + (" | null" if self.default is None else "")

    def check_value(self, value: Any, *, may_be_null: bool) -> None:
        """Refuse a value of the right type that the setting cannot have."""
        if (value is None and not may_be_null) or value == "":
            raise refusal(self.key, "nothing" if value == "" else "null", self.allowed)
        if self.check and value is not None and not isinstance(value, str) and not self.check.passes(value):
            raise refusal(self.key, value, self.allowed)


def walk(section: type, prefix: str = "") -> dict[str, Setting]:
    """The settings of a section by dotted key."""
    found: dict[str, Setting] = {}
    for entry in dataclasses.fields(section):
        key = f"{prefix}{entry.name}"
        if isinstance(entry.type, type) and dataclasses.is_dataclass(entry.type):
            found |= walk(entry.type, f"{key}.")
        else:
            found[key] = Setting(
                key, entry.type, entry.metadata["default"], entry.metadata["help"], entry.metadata["check"]
            )
    return found


SETTINGS = walk(Config)
DEFAULTS = {key: spec.default for key, spec in SETTINGS.items()}


def check_asked(asked: dict[str, Any]) -> None:
    """Refuse what is asked where single values are wrong, or exclude one another whatever the algorithm is."""
    for key, spec in SETTINGS.items():
        spec.check_value(asked[key], may_be_null=spec.default is None)
    steps, epochs, file, kind = (asked[key] for key in ("local.steps", "local.epochs", "graph.file", "graph.kind"))
    if steps is not None and epochs is not None:
        raise ConfigError(f"local.steps: given {steps} beside local.epochs {epochs}, allowed: only one")
    if file is None and kind == "file":
        raise refusal("graph.file", "null", "a file, with graph.kind file")
    if file is not None and kind not in (None, "file"):
        raise refusal("graph.file", file, f"null, with graph.kind {kind}")
    indices, partition = asked["data.file"], asked["data.partition"]
    if indices is None and partition == "file":
        raise refusal("data.file", "null", "a partition.npz, with data.partition file")
    if indices is not None and partition != "file":
        raise refusal("data.file", indices, f"null, with data.partition {partition} (or data.partition file)")
