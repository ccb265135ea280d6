"""The methods as mathematics: one row each, local steps, mixing, what push weights must be. No torch.distributed."""
