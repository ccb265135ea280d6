"""Names in settings: an entry of a registry, or an import path such as `package.module:name`."""

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from dfl_dist.errors import fail_as_user, name_as_users, refusal

T = TypeVar("T")


def is_import_path(name: str) -> bool:
    return ":" in name


def imported(path: str) -> Any:
    """What an import path leads to."""
    module, _, attribute = path.partition(":")
    name_as_users(module)
    return getattr(importlib.import_module(module), attribute)


def lookup(key: str, name: str, registry: Mapping[str, Any]) -> Any:
    """The entry of a registry, or what the import path `package.module:name` leads to."""
    if name in registry:
        return registry[name]
    if not is_import_path(name):
        raise refusal(key, name, ", ".join(registry) + " or package.module:name", registry)
    try:
        return imported(name)
    except Exception as error:  # whatever the user's module does when it is imported
        fail_as_user(f"{key}: importing {name}")
        allowed = "a module that can be imported, and a name in it"
        raise refusal(key, f"{name}, which cannot be imported", allowed, because=error) from error


def choose(key: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of a registry that takes no import paths."""
    if name not in registry:
        raise refusal(key, name, ", ".join(registry), registry)
    return registry[name]
