"""Asymmetric decentralized federated learning: one process a client, push-sum over directed graphs."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dfl_dist.train import train as train


def __getattr__(name: str) -> ModuleType:
    """`dfl_dist.train` is a module that can be called; torch is imported with it, not before."""
    if name == "train":
        return importlib.import_module("dfl_dist.train")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
