"""Examples: the flows that `pgflowd demo` runs. They touch nothing but their own inputs."""
