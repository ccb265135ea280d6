"""Names in settings: an entry of a registry, or an import path."""

import pytest

from dfl_dist.config.names import choose, lookup
from dfl_dist.config.values import dump, load_asked
from dfl_dist.errors import ConfigError


def test_lookup_by_name_and_by_import_path() -> None:
    registry = {"plain": dump}
    assert lookup("model.name", "plain", registry) is dump
    assert lookup("model.name", "dfl_dist.config.values:load_asked", registry) is load_asked
    with pytest.raises(
        ConfigError, match=r"given plan, allowed: plain or package.module:name \(did you mean plain\?\)"
    ):
        lookup("model.name", "plan", registry)
    for path in ("nowhere:x", ":x", ".a:b", "dfl_dist.config.values:nothing"):
        with pytest.raises(ConfigError, match=rf"model\.name: given {path}, which cannot be imported"):
            lookup("model.name", path, registry)


def test_a_registry_without_import_paths() -> None:
    assert choose("algorithm", "sgp", {"sgp": 1}) == 1
    with pytest.raises(ConfigError, match=r"algorithm: given a:b, allowed: sgp$"):
        choose("algorithm", "a:b", {"sgp": 1})
