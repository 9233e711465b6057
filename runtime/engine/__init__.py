"""Engine cores: each runs the stages of one kind, for many requests at once."""
