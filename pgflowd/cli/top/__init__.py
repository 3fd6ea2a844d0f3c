"""`pgflowd top`: `source` reads, `lines` decides what is shown, `live` shows it with Textual."""
