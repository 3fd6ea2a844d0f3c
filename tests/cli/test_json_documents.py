"""
The documents of `--json`, byte for byte, as `json_documents.txt` has them.

Ids, moments and durations differ each time and are written as words. Programs read these documents,
so the file changes only when one gets a new key.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

KEPT = Path(__file__).with_name("json_documents.txt")
_CHANGING = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>"),
    (r"-?\d+\.\d+(e-?\d+)?(?=[,\s}])", "<number>"),
    (r'("(worker|server|place|peak_kb|cpu_s)": ).*?(,?\n)', r"\1<known here>\3"),
]
LOOKING = """
runs list; runs list --flow send_email; runs show @completed; runs show @completed --attempts
runs show @failed --attempts; runs show @cancelled; runs show @open; runs follow @completed
runs follow @failed; runs follow @cancelled; runs wait @completed; runs wait @failed @cancelled
flows list; flows show analyze_website; flows show store_items; flows graph analyze_website
flows graph analyze_website --run @failed; flows diff store_items; stalled list; status
"""
CHANGING = """
runs start send_email 1; runs cancel @open --reason enough; runs retry @failed
stalled requeue --all; stalled fail --all; flows deploy send_email
flows delete store_items --yes --force
"""


def test_every_document_is_as_it_was(here, shop, project, monkeypatch):
    monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(project / "nobody.sock"))
    runs = seeded(shop)
    shown = []
    for line in re.split(r"[;\n]", f"{LOOKING}{CHANGING}"):
        if line := line.strip():
            words = [str(runs.get(word, word)) for word in shlex.split(line)]
            ended = here(*words, "--json")
            shown.append(f"$ pgflowd {line} --json  # {ended.code}\n{without_changes(ended.out)}")

    assert "\n".join(shown) == KEPT.read_text("utf-8")


def seeded(shop):
    """Runs with all statuses, a map, and a stalled task; by the word that stands for each."""
    runs = {"@completed": shop.run_through({"n": [1, "ä"]})}
    runs["@failed"] = shop.start(input={"url": "y", "n": 2**70})
    key = shop.claim_all()["website#0"]
    sql = "select pgflowd.fail(%s, %s, %s, %s, %s, retry => false, traceback => 'File \"a.py\"')"
    shop.conn.execute(sql, (*key, "no such host"))
    runs["@cancelled"] = shop.start()
    shop.conn.execute("select pgflowd.cancel(%s, 'wrong', 'somebody')", (runs["@cancelled"],))
    runs["@map"] = shop.start("store_items", ["a", "b"])
    shop.claim_all("store_items")
    runs["@open"] = shop.start()
    shop.fail(shop.claim_all()["website#0"], "busy")
    shop.stall()
    return runs


def without_changes(text: str) -> str:
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return text
