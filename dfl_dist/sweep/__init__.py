"""The runs of a grid, one after the other."""
