"""One run on one rank: setting up, the rounds, the two roles (leader and follower), evaluation."""
