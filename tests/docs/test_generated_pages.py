"""The generated pages and config/pgflowd.toml are what the code says today."""

from __future__ import annotations

import pytest
from support.references import FILES, ROOT


@pytest.mark.parametrize("path", FILES)
def test_a_generated_file_is_what_the_generator_writes(path: str) -> None:
    written = (ROOT / path).read_text("utf-8")

    assert written == FILES[path](), "run `make references`"
