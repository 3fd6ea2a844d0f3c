"""A secret in an input is on no page, in no document, stream or download."""

from __future__ import annotations

import httpx
import pytest
from psycopg.types.json import Jsonb
from support.covers import covers
from support.dashboard import Running, running

SECRET = "hunter2"
KEYS = ("password",)


@pytest.mark.parametrize("mode", ["redacted", "hidden", "shown"])
def test_a_secret_in_an_input_is_shown_only_if_it_may_be(database, shop, mode):
    run = shop.run_through({"login": {"Password": SECRET}, "url": "https://x.example"})
    with running(database.dsn, auth="none", payloads=mode, redact=KEYS) as made:
        seen = {path: text_of(made, path.format(run=run)) for path in PATHS}
        values = made.browser().get(f"/runs/{run}?view=values").text

    assert all(SECRET not in text for text in seen.values()) == (mode != "shown"), [
        path for path, text in seen.items() if SECRET in text
    ]
    assert ("https://x.example" in values) == (mode != "hidden")
    assert "***" in values or mode == "shown"


@covers("attack 15")
@pytest.mark.parametrize("mode", ["redacted", "hidden", "shown"])
def test_a_secret_in_a_label_or_an_error_is_shown_only_if_it_may_be(database, shop, mode):
    labels = Jsonb({"Password": SECRET, "env": "prod"})
    start = "select run_id from pgflowd.start('send_email', '1', labels => %s, actor => 'jane')"
    run = shop.value(start, labels)
    (task,) = shop.claim_all("send_email").values()
    text = f"OSError: cannot log in with password={SECRET} at postgresql://u:{SECRET}@db"
    shop.fail(task, text, retry=False, traceback=f"Traceback: {text}")
    with running(database.dsn, auth="none", payloads=mode, redact=KEYS) as made:
        seen = {path: text_of(made, path.format(run=run)) for path in TEXTS}

    assert all(SECRET not in text for text in seen.values()) == (mode != "shown"), [
        path for path, text in seen.items() if SECRET in text
    ]
    assert "cannot log in" in seen["/runs"] and "prod" in seen["/runs/{run}"]


TEXTS = (
    "/", "/runs", "/dead", "/runs/{run}", "/runs/{run}?view=attempts", "/runs/{run}?view=timeline",
    "/runs/{run}/steps/perform?task=0", "/api/1/overview", "/api/1/runs", "/api/1/dead",
    "/api/1/runs/{run}", "/api/1/runs/{run}?view=attempts", "/api/1/runs/{run}?view=timeline",
    "/api/1/runs/{run}/steps/perform", "/api/1/runs/{run}/events", "/fragments/runs/{run}",
)  # fmt: skip
PATHS = (
    "/", "/runs", "/runs/{run}", "/runs/{run}?view=values", "/runs/{run}?view=attempts",
    "/runs/{run}?view=timeline", "/runs/{run}/steps/website", "/flows/analyze_website/start",
    "/api/1/runs/{run}", "/api/1/runs/{run}?view=values", "/api/1/flows/analyze_website/start",
    "/api/1/runs/{run}/events", "/fragments/runs/{run}", "/fragments/runs/{run}?view=values",
    "/download/{run}?what=output", "/api/1/runs?flow=analyze_website",
)  # fmt: skip


def text_of(made: Running, path: str) -> str:
    """All that a path answers; a stream of a run that has ended ends, too."""
    with made.browser() as browser:
        answer = browser.get(path)
    assert answer.status_code == httpx.codes.OK, (path, answer.text)
    return answer.text
