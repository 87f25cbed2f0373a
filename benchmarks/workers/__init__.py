"""One script per contender of the suite; each runs alone in a process, some on the Python of another framework."""
