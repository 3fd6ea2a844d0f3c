"""`pgflowd top`: `keys`, `model`, `flow_rows` and the pictures decide; the others act."""
