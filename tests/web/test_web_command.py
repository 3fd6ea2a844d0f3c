"""`pgflowd web`, as a process: its link, its title, its log, its end, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import documents
from support.covers import covers
from support.servers import free_port

from pgflowd.cli.commands import web as command
from pgflowd.cli.main import run
from pgflowd.core.settings.sections import Settings, WebSettings
from pgflowd.errors import PgflowdError
from pgflowd.testing.until import until

PGFLOWD = [sys.executable, "-m", "pgflowd"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as the current one."""
    for name in [name for name in os.environ if "PGFLOWD" in name]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refusal(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Run a command that does not begin to serve; return its exit code and its problem."""

    def ended(*words: str) -> tuple[int, Any]:
        code = run(["web", *words, "--json"])
        return code, json.loads(capsys.readouterr().err)[0]

    return ended


@covers("E510")
def test_it_prints_a_link_serves_it_logs_and_ends(database, shop, place):
    port = free_port()
    words = ["--json", "--database-url", database.dsn, "--listen", f"127.0.0.1:{port}"]
    program = place / "browser"
    program.write_text('#!/bin/sh\nprintf "%s" "$1" > words; cp "${1#file://}" page\n')
    program.chmod(0o755)
    process = subprocess.Popen(
        [*PGFLOWD, "web", *words, "--open"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "BROWSER": str(program)},
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        documents.check(["web", "--json"], line, "")
        link = json.loads(line)["link"]
        with httpx.Client(timeout=30) as browser:
            before = browser.get(f"http://127.0.0.1:{port}/")
            entered = browser.get(link)
            page = browser.get(f"http://127.0.0.1:{port}/")
        title = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0")
        until((place / "page").exists, within_s=30)
        until(lambda: link in (place / "page").read_text(), within_s=30)
        second = subprocess.run([*PGFLOWD, "web", *words], capture_output=True, timeout=60)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert (before.status_code, entered.status_code, page.status_code) == (401, 200, 200)
    assert "store_items" in page.text
    assert title == "pgflowd: web"
    assert (second.returncode, json.loads(second.stderr)[0]["code"]) == (75, "E510")
    assert process.returncode == 0
    records = [json.loads(each) for each in log.splitlines()]
    assert [each["event"] for each in records] == ["web.started", "web.login", "web.stopped"]
    assert {each["process"] for each in records} == {"web"}
    assert link.partition("key=")[2] not in log
    words_of_browser = (place / "words").read_text()  # which others can see
    assert words_of_browser.startswith("file:///") and "key=" not in words_of_browser
    assert not Path(words_of_browser.removeprefix("file://")).exists()


def test_an_address_that_others_reach_needs_a_login(refusal, place):
    assert [refusal("--listen", f"{host}:7460")[0] for host in ("0.0.0.0", "[::]")] == [78, 78]
    assert refusal("--listen", "0.0.0.0:7460")[1]["code"] == "E501"
    (place / "pgflowd.toml").write_text('[web]\nauth = "none"\n')
    code, problem = refusal("--listen", "10.1.2.3:7460")
    assert (code, problem["code"], problem["place"]) == (78, "E501", "--listen")


@pytest.mark.parametrize(("auth", "mode"), [("key", 0o600), ("proxy", 0o660)])
def test_a_unix_socket_is_ours_and_that_of_a_proxy_in_our_group(place, auth, mode):
    path = place / "run" / "web.sock"
    web = replace(WebSettings(), listen=f"unix:{path}", auth=auth)
    with command._listening(Settings(web=web)):
        found = path.stat().st_mode & 0o777
        with pytest.raises(PgflowdError) as refused, command._listening(Settings(web=web)):
            pass

    assert found == mode
    assert refused.value.code == "E510"
    assert not path.exists()


@covers("E503")
def test_without_the_extra_it_says_what_to_install(refusal, monkeypatch):
    monkeypatch.setattr(command, "NEEDED", ("starlette", "no_such_package"))

    code, problem = refusal()

    assert (code, problem["code"]) == (78, "E503")
    assert problem["next"] == "pip install 'pgflowd[web]'"


def test_files_of_logins_must_be_ours_alone(refusal, place, monkeypatch, capsys):
    (place / "pgflowd.toml").write_text(
        '[web]\nauth = "password"\nusers = "users"\ntokens = "tokens"\nsecret = "secret"\n'
    )
    missing = refusal()
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n" * 2 + "short\n"))
    assert run(["web", "passwd", "jane", "--act"]) == 0
    assert run(["web", "passwd", "jane"]) == 0
    assert run(["web", "passwd", "joe"]) == 2
    assert run(["web", "token", "ci"]) == 0
    capsys.readouterr()
    without_secret = refusal()
    (place / "secret").touch(0o600)
    short = refusal()
    mode = (place / "users").stat().st_mode & 0o777
    (place / "users").chmod(0o640)
    is_open = refusal()
    (place / "users").chmod(0o600)
    with (place / "users").open("a") as file:
        file.write("joe:everything:x\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    wrong = refusal("passwd", "joe")

    assert mode == 0o600
    assert (place / "users").read_text().count("jane:view:scrypt$") == 1
    assert "correct" not in (place / "users").read_text()
    for code, problem in (missing, without_secret, short, is_open, wrong):
        assert (code, problem["code"]) == (78, "E502")
    assert "cannot be read: No such file" in missing[1]["text"]
    assert "has less than 16 bytes" in short[1]["text"]
    assert is_open[1]["next"].startswith("chmod 600 ")
    assert "line 3 of" in wrong[1]["text"]


def test_a_password_is_of_a_named_file_and_user(refusal, place):
    assert refusal("passwd", "jane")[1]["code"] == "E502"
    (place / "pgflowd.toml").write_text('[web]\nusers = "users"\n')
    assert refusal("passwd", "jane:doe")[0] == 2


def test_a_file_whose_directory_is_not_there_is_no_bug(refusal, place, monkeypatch):
    (place / "pgflowd.toml").write_text('[web]\nusers = "missing/users"\n')
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))

    code, problem = refusal("passwd", "jane")

    assert (code, problem["code"]) == (78, "E502")
    assert "cannot be written: No such file" in problem["text"]
    assert problem["next"].endswith(f"own a directory {place / 'missing'}")
