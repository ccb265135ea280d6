"""What a run is and what it leaves behind: the job, its folder, checkpoints, records."""
