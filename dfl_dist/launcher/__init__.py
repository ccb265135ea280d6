"""Starts the ranks of a job, on one host or on several; restarts and stops them."""
