"""
Databases as the dashboard meets them: with all that pages can show, and with hostile texts at each
place that people, handlers and daemons can write to.
"""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

from pgflowd import Flow
from support.hostile import ATTACKS
from support.shop import Shop

STATUS = json.loads((Path(__file__).parents[1] / "unit" / "status_document.json").read_text())
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/flows/analyze.py", line 31, in summary
    answer = model.ask(text, timeout=20)
  File "/srv/shop/model.py", line 12, in ask
    raise TimeoutError("model did not answer")
TimeoutError: model did not answer
"""
PRINTED = (
    "0.01 stdout asking the model\n0.5 warning the model is slow\n20.0 error no answer after 20 s\n"
)

# what an attack would leave in a page, and texts that have a meaning to HTML, CSS and templates
MARKUP = [
    "<script>document.documentElement.dataset.owned = 1</script>",
    '"><img src=x onerror="document.documentElement.dataset.owned = 2"><b data-owned>',
    "'><svg onload=alert(1) data-owned></svg>",
    "</title></style></textarea></template><b data-owned>",
    "]]></svg><b data-owned>",
    "{{ 7 * 7 }}{% for x in () %}",
    "javascript:document.documentElement.dataset.owned=3",
    "&lt;b data-owned&gt;&#60;",
    "?a=1&b=2#top",
    "wide" * 100,
]
HOSTILE = [*ATTACKS, *MARKUP]

Words = dict[str, str]  # of addresses: run, step, flow, …


def full(shop: Shop) -> Words:
    """Runs of all kinds, a failed one, a map, waits, schedules, daemons, what people did."""
    shop.deploy()
    for number in range(4):
        shop.run_through({"title": "Example", "number": number, "tags": ["a", {"b": [1.5, None]}]})
    run = _fail_a_step(shop, TRACEBACK, PRINTED)
    many = shop.start("store_items", [{"sku": number} for number in range(120)])
    for index, task in enumerate(shop.claim_all("store_items").values()):
        if index < 70:
            shop.complete(task, {"stored": index})
        elif index in (71, 72):
            shop.fail(task, "HTTPError: 404 Not Found")
    waiting = shop.start("send_email", {"to": "jane@example.com"})
    _wait_for_a_signal(shop, "paid")
    shop.start("send_email", {"to": "joe@example.com"})
    for task in shop.claim_all("send_email").values():
        shop.fail(task, "SMTPError: mailbox unavailable", retry=False)
    shop.start("send_email", {"to": "ann@example.com"})
    shop.claim_all("send_email")
    shop.do(
        "update pgflowd.attempts set lease_until = now() - interval '1 h', started_at ="
        " now() - interval '2 h' where flow_slug = 'send_email' and ended_at is null"
    )
    _people(shop, "jane", "the customer has called", {"env": "prod", "customer": "42"})
    shop.do("select pgflowd.signal(%s, 'other', '{\"amount\": 12}', 'jane', null)", waiting)
    _tell_daemon(shop, STATUS)
    shop.do(
        "insert into pgflowd.minutes (flow_slug, at, step_slug, completed, failed, ran, waited)"
        " select flow, date_trunc('minute', now()) - nr * interval '1 minute', step,"
        "        40 + (nr * 7 + length(flow) * 3) % 23, (nr % 9 = 4)::int, array[nr, 9, 3], null"
        "   from generate_series(1, 58) as nr, (values"
        " ('analyze_website', ''), ('analyze_website', 'website'), ('analyze_website', 'summary'),"
        " ('store_items', ''), ('send_email', '')) as one (flow, step)"
    )
    return _words(shop, run, many)


def hostile(shop: Shop) -> Words:
    """The same places, with hostile texts in each."""
    shop.deploy()
    shop.create(_odd_flow())
    texts = cycle(HOSTILE)
    value = {text: [text, {text: text}] for text in HOSTILE if "\0" not in text}
    shop.run_through(value)
    lines = [text.replace("\n", " ").replace("\r", " ") for text in HOSTILE]
    run = _fail_a_step(
        shop, "\n".join([TRACEBACK, *HOSTILE]), "".join(f"0.1 stdout {line}\n" for line in lines)
    )
    many = shop.start("store_items", HOSTILE)
    for task in shop.claim_all("store_items").values():
        shop.fail(task, next(texts))
    shop.start("send_email", {})
    for task in shop.claim_all("send_email").values():
        shop.fail(task, MARKUP[0], retry=False)
    shop.start("__proto__", value)
    for text in HOSTILE:
        shop.start("send_email", text)
        name = text.encode("ascii", "ignore").decode().strip() or "x"
        shop.do("select pgflowd.signal(%s, %s, %s, %s, null)",
                run, name[:100], json.dumps(text), text)  # fmt: skip
        _people(shop, text, text, {"label": text[:200]})
    _wait_for_a_signal(shop, MARKUP[1][:100])
    _tell_daemon(shop, _with_texts(STATUS, texts))
    return _words(shop, run, many)


def _odd_flow() -> Flow:
    """A flow whose names mean something to JavaScript."""
    flow = Flow("__proto__")

    @flow.step
    def constructor(run: Any) -> None: ...

    @flow.step
    def hasOwnProperty(constructor: Any) -> None: ...

    return flow


def _fail_a_step(shop: Shop, traceback: str, printed: str) -> Any:
    """A run of analyze_website whose step summary fails once, and then for good."""
    run = shop.start(input={"url": "https://example.com", "depth": 3})
    deep = {"a": {"b": {"c": {"d": {"e": "the deepest"}}}}}
    shop.complete(shop.claim_all()["website#0"], {"title": "Example", "links": deep})
    tasks = shop.claim_all()
    shop.complete(tasks["sentiment#0"], 0.7)
    error = traceback.strip().splitlines()[-1]
    shop.fail(tasks["summary#0"], error)
    shop.do(
        "update pgflowd.attempts set traceback = %s, error_type = 'TimeoutError', printed = %s,"
        " printed_lines = 3, cpu_s = 0.4, peak_kb = 65000 where run_id = %s"
        " and step_slug = 'summary'", traceback, printed, run,
    )  # fmt: skip
    return run


def _wait_for_a_signal(shop: Shop, name: str) -> None:
    shop.suspend(next(iter(shop.claim_all("send_email").values())), kind="signal", name=name)


def _people(shop: Shop, actor: str, reason: str, labels: dict[str, str]) -> None:
    """A run with labels that somebody planned, paused, resumed and cancelled."""
    run = shop.value(
        "select run_id from pgflowd.start('send_email', '{}', labels => %s::jsonb, actor => %s)",
        json.dumps(labels), actor,
    )  # fmt: skip
    for verb in ("pause", "resume", "cancel"):
        shop.do(f"select pgflowd.{verb}(%s, %s, %s)", run, reason, actor)
    shop.do("select run_id from pgflowd.start('send_email', '{}',"
            " start_at => now() + interval '1 day', actor => %s)", actor)  # fmt: skip
    shop.do("select pgflowd.set_schedule('nightly', 'send_email', '0 3 * * 1-5', actor => %s)",
            actor)  # fmt: skip


def _tell_daemon(shop: Shop, status: dict[str, Any]) -> None:
    shop.do("select pgflowd.tell_daemon(%s::jsonb)", json.dumps(status))


def _with_texts(value: Any, texts: Any, key: str = "") -> Any:
    """A status document in which every free text is hostile."""
    if isinstance(value, dict):
        return {name: _with_texts(each, texts, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_texts(each, texts, key) for each in value]
    is_free = isinstance(value, str) and key not in ("id", "started_at", "state")
    return next(texts).replace("\0", "") if is_free else value


def _words(shop: Shop, run: Any, many: Any) -> Words:
    daemon = shop.value("select daemon_id from pgflowd.daemons")
    return {"run": str(run), "map": str(many), "flow": "analyze_website", "daemon": str(daemon)}
