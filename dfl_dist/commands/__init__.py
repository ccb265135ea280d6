"""The commands of `dfl-dist`, one module each."""
