"""The files that come with the package, by name: configs, and the scripts that start runs elsewhere."""

from pathlib import Path

from dfl_dist.errors import ConfigError, nearest

FILES = Path(__file__).resolve().parents[1] / "files"  # in a checkout its folders are links to those at the top
CONFIGS = FILES / "configs"


def config_names() -> list[str]:
    """What `--config` and `dfl-dist sweep` know by name, such as quickstart or paper/mnist."""
    return sorted(str(path.relative_to(CONFIGS).with_suffix("")) for path in CONFIGS.rglob("*.yaml"))


def is_grid(name: str) -> bool:
    """Whether a config of the package is for `dfl-dist sweep`, not for `--config`."""
    return any(line.startswith("grid:") for line in (CONFIGS / f"{name}.yaml").read_text().splitlines())


def find_config(key: str, given: str) -> Path:
    """The user's file of this name; where there is none, the one that comes with the package.

    What is offered in place of an unknown name is what fits the key: `sweep` takes grids, `config` one run's settings.
    """
    path = Path(given)
    if path.exists():
        return path
    name = given.removeprefix("configs/").removesuffix(".yaml")
    if name in config_names():
        return CONFIGS / f"{name}.yaml"
    names = [one for one in config_names() if is_grid(one) == (key == "sweep")]
    near = nearest(name, names)
    hint = f" (did you mean {near}?)" if near else ""
    raise ConfigError(f"{key}: given {given}, which is not there, allowed: a file, or {', '.join(names)}{hint}")
