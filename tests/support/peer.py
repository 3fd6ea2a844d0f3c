"""
A peer: the TypeScript client of the npm registry, in a process of its own.

`tests/npm/peer.mjs` runs it under Node, with `pgflow.run_in_input` on for its connection, as its
handlers expect. Its packages come by `make peers`; without them a test fails and names it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from psycopg import conninfo

NPM = Path(__file__).parents[1] / "npm"


class Peer:
    """The peer's process: a method of its client per call."""

    def __init__(self, dsn: str, **settings: str) -> None:
        assert shutil.which("node"), "this test needs Node.js; run `make peers`"
        assert (NPM / "node_modules" / "@pgflow" / "core").exists(), "run `make peers`"
        place = conninfo.conninfo_to_dict(dsn)
        arguments = {
            "host": place.get("host", "127.0.0.1"),
            "port": int(place.get("port", 5432)),
            "user": place.get("user", "postgres"),
            "database": place["dbname"],
            "settings": {"pgflow.run_in_input": "on", **settings},
        }
        self.process = subprocess.Popen(
            ["node", "peer.mjs", json.dumps(arguments)],
            cwd=NPM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        self.process.stdin.write(json.dumps([method, *arguments], default=str) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise PeerError(answer)
        return answer["ok"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


class PeerError(Exception):
    """Text and SQLSTATE of the error that the peer's client threw."""
