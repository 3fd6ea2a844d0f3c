"""What the rooms of the tests share: databases, workers, daemons, networks and invariants."""
