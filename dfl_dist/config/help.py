"""The help of the settings: section by section, wrapped to the terminal."""

import textwrap
from collections.abc import Iterator

from dfl_dist.config.schema import SETTINGS, Setting
from dfl_dist.text import prose_width, wrap

USAGE = "usage: torchrun --nproc_per_node=N -m dfl_dist.train [--config FILE] [--dry-run] [--KEY VALUE ...]"
ABOUT = "Train one model across many clients that have no server (DFedSGPSM and its family)."
NULLS = "A null takes the algorithm's value where its row has one. In YAML keys are nested: local: {rho: 0.2}."
CONFIG = "a YAML file with any of these keys; later arguments override it"
DRY_RUN = "show what would be run, where, and what it costs; refuse what a start would refuse; start and write nothing"
TITLES = {
    "": "The run",
    "data": "Data, and who holds what",
    "model": "Model",
    "local": "Local steps",
    "graph": "Graph: who pushes to whom",
    "eval": "Evaluation",
    "checkpoint": "Checkpoints",
    "stop": "Early stopping",
}
INDENT = 6


def help_text() -> str:
    """Every setting with what it is for, what is allowed and its default."""
    parts = [wrap(USAGE), "", wrap(ABOUT), "", "  --config FILE", entry(CONFIG), "  --dry-run", entry(DRY_RUN)]
    for title, settings in sections():
        parts += ["", f"{title}:"]
        for spec in settings:
            parts += [f"  --{spec.key} V", entry(help_line(spec))]
    return "\n".join([*parts, "", wrap(NULLS)])


def sections() -> Iterator[tuple[str, list[Setting]]]:
    """The settings under their titles."""
    for section, title in TITLES.items():
        yield title, [spec for key, spec in SETTINGS.items() if key.rpartition(".")[0] == section]


def entry(text: str) -> str:
    margin = " " * INDENT
    return textwrap.fill(text, prose_width(), initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)


def help_line(spec: Setting) -> str:
    default = "null" if spec.default is None else spec.default
    return f"{fill_names(spec.help)} [{spec.allowed}] default: {default}"


def fill_names(text: str) -> str:
    """A help line with the names of built-in data sets and models filled in, which takes torch."""
    from dfl_dist.data.datasets import DATASETS
    from dfl_dist.models.zoo import MODELS

    return text.replace("{data_sets}", ", ".join(DATASETS)).replace("{models}", ", ".join(MODELS))
