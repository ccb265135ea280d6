"""`dfl-dist topology`: what graphs do to averaging and to the network, without training."""
