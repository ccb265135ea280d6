"""Asymmetric decentralized federated learning: one process a client, push-sum over directed graphs."""

__version__ = "0.1.0"
