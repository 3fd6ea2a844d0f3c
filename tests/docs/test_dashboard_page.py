"""docs/operate/dashboard.md names the verbs for many runs, and makes the files of the service."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from support.pages import blocks_of

from pgflowd.cli.main import run
from pgflowd.web.actions import MANY_VERBS
from pgflowd.web.login_files import read_secret

PAGE = Path(__file__).parents[2] / "docs/operate/dashboard.md"
_MANY = "/runs/many/{verb}"


def test_each_verb_for_many_runs_is_named():
    (text,) = re.findall(rf"`{re.escape(_MANY)}` (.+?) up to", PAGE.read_text(), re.S)
    assert all(verb.path[:4] in text for verb in MANY_VERBS)


def test_the_files_of_the_service_are_made_as_the_page_says(tmp_path, monkeypatch):
    (config,) = [text for text in blocks_of("docs/operate/dashboard.md", "toml") if "cred:" in text]
    (block,) = [b for b in blocks_of("docs/operate/dashboard.md", "console") if "openssl" in b]
    here = lambda text: text.replace("/var/lib/pgflowd-web", str(tmp_path / "web"))  # noqa: E731
    (tmp_path / "web.toml").write_text(here(config))
    _, directory, secret, passwd, _ = (line.removeprefix("$ ") for line in block.splitlines())

    for line in (directory, secret):
        as_us = re.sub(r"sudo | -o pgflowd-web", "", here(line))
        subprocess.run(as_us, shell=True, check=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    words = passwd.replace("/etc/pgflowd/", f"{tmp_path}/").split()
    assert words[:4] == ["sudo", "-u", "pgflowd-web", "pgflowd"]
    assert run(words[4:]) == 0

    assert "jane:act:scrypt$" in (tmp_path / "web/users").read_text()
    assert len(read_secret(str(tmp_path / "web/secret"))) == 32
