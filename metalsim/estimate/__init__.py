"""What a launch did, as counters, and how long it would take on a chip: an estimate."""
