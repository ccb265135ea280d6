"""`dfl-dist doctor`: whether this machine, or all hosts of a job, can run it."""
