"""`make references`: writes the generated files."""

from support.references import write

write()
