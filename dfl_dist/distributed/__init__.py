"""Processes and what goes between them: the only package, beside the launcher, that imports torch.distributed."""
