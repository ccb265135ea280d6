"""Data sets and their division over the clients."""
