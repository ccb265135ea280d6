"""`dfl-dist partition`: which client has how many samples of which class, without training."""
