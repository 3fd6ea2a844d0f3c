"""
The marker of the design rules that a test shows: `@covers("rule 35", "row 19", "P5")`.

`rule` is one of docs/background/supervision.md; `row`, `P` and `D` stand in
docs/background/failures.md, `trap` in docs/background/runners.md, `G` in
docs/reference/guarantees.md; `E` and `W` are codes of `pgflowd.errors` that the example of their
page in docs/errors cannot provoke. tests/docs/test_covers.py holds that each of them is covered by
a test, and that no marker names what is not there.
"""

from __future__ import annotations

import pytest

covers = pytest.mark.covers
