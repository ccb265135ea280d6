"""Who pushes to whom: graphs, their kinds, schedules, and what they do to averaging."""
