"""Who may see the dashboard, and who may act: links, passwords, tokens, proxies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.covers import covers
from support.dashboard import Running, running

from pgflowd.web.auth import ALL, FailedLogins, hash_of, is_right, keys_of
from pgflowd.web.login_files import (
    LASTS_S,
    BrowserSession,
    LoginFile,
    LoginLine,
    SignedCookies,
    new_token,
)

SAME = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files with jane, who may act, joe, who may look, and a secret."""
    users = LoginFile(str(tmp_path / "users"), "users")
    users.put(LoginLine("jane", True, hash_of("correct horse")))
    users.put(LoginLine("joe", False, hash_of("battery staple")))
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef")
    return {"users": str(users.path), "secret": str(secret)}


def nothing(client: httpx.Client, **headers: str) -> int:
    """The status of a page that does not exist: 404 for who is logged in."""
    return client.get("/nothing", headers=headers, follow_redirects=False).status_code


@covers("E509")
def test_a_link_is_exchanged_for_a_cookie(database, shop):
    with running(database.dsn) as made, made.browser() as browser, made.browser() as other:
        stranger, wrong = browser.get("/"), browser.get("/?key=wrong")
        entered = browser.get(made.link)
        page = browser.get("/")
        (cookie,) = entered.headers.get_list("set-cookie")
        changed = cookie.partition(";")[0][:-2] + "xx"

        assert (stranger.status_code, wrong.status_code, page.status_code) == (401, 401, 200)
        assert "E509" in stranger.text and "set-cookie" not in wrong.headers
        assert cookie.startswith(f"pgflowd-{made.place}=")
        assert "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict" in cookie
        assert "url=/" in entered.text and made.key not in entered.text
        assert made.key not in page.text
        assert "Log out owner" in page.text
        assert nothing(other, cookie=changed) == 401
        assert nothing(other, cookie=cookie.partition(";")[0]) == 404
        left = browser.post("/logout", headers=SAME)
        assert left.status_code == 303 and "Max-Age=0" in left.headers["set-cookie"]
        assert nothing(browser) == 401
        events = made.log.events()
        assert (events.count("web.login"), events.count("web.refused")) == (1, 1)


def test_the_style_is_for_everybody_and_no_page_is():
    with running("") as made, made.browser() as browser:
        css = re.findall(r'href="(/assets/[^"]*css)"', browser.get("/").text)

        assert browser.get(css[0]).status_code == 200
        for path in ("/runs", "/api/1/runs", "/login", "//", "/assets", "/assets/../runs"):
            assert browser.get(path).status_code == 401, path
        assert browser.get("/assets/%2e%2e/application.py").status_code == 404


def test_names_and_passwords(files):
    with running("", auth="password", **files) as made, made.browser() as jane:
        to_login = jane.get("/runs?flow=x")
        page = jane.get(to_login.headers["location"])
        wrong = log_in(jane, "jane", "horse")
        done = log_in(jane, "jane", "correct horse", next="/runs?flow=x")
        elsewhere = [
            log_in(jane, "jane", "correct horse", next=each).headers["location"]
            for each in ("//evil.example", "https://evil.example", "/\\evil.example", "/\t/x", "")
        ]

        assert to_login.headers["location"] == "/login?next=%2Fruns%3Fflow%3Dx"
        assert 'name="next" value="/runs?flow=x"' in page.text
        assert (page.status_code, wrong.status_code, done.status_code) == (200, 401, 303)
        assert "The name or the password is wrong" in wrong.text
        assert "set-cookie" not in wrong.headers
        assert done.headers["location"] == "/runs?flow=x"
        assert elsewhere == ["/"] * 5
        assert nothing(jane) == 404
        assert jane.get("/api/1/runs?no=1").status_code == 400

        LoginFile(files["users"], "users").put(LoginLine("jane", False, hash_of("another horse")))
        assert nothing(jane) == 303  # a new password ends her logins
        assert made.log.events() == [
            "web.login_failed", *["web.login"] * 6,
        ]  # fmt: skip
        assert "horse" not in str(made.log.records)


def test_a_file_that_cannot_be_used_is_named_in_the_log_alone(files):
    with running("", auth="password", **files) as made, made.browser() as browser:
        with Path(files["users"]).open("a") as file:
            file.write("root:everything\n")
        answer = log_in(browser, "jane", "correct horse")

        assert answer.status_code == 503
        assert "E502" in answer.text and "the log of the dashboard says why" in answer.text
        assert files["users"] not in answer.text
        assert f"line 4 of {files['users']}" in str(made.log.records)


def test_a_login_holds_on_another_process_with_the_same_secret(files):
    with (
        running("", auth="password", **files) as one,
        running("", auth="password", **files) as two,
        running("", auth="password", users=files["users"]) as stranger,
        one.browser(host="localhost") as browser,
    ):
        cookie = log_in(browser, "joe", "battery staple").headers["set-cookie"].partition(";")[0]
        headers = {"host": "localhost", "cookie": cookie}

        assert [httpx.get(f"{each.url}/nothing", headers=headers).status_code
                for each in (one, two, stranger)] == [404, 404, 401]  # fmt: skip


def test_over_https_the_cookie_is_for_this_host_alone(files):
    web = {"auth": "password", "hosts": ("flows.example",), "base_path": "/flows", **files}
    with running("", **web) as made, made.browser(host="flows.example") as browser:
        done = log_in(browser, "joe", "battery staple", path="/flows/login")

    cookie, known = done.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-pgflowd-flows=")
    assert known.startswith("__Host-pgflowd-flows-known=") and known.endswith("; Secure")
    assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure")
    assert done.headers["location"] == "/flows/"


def test_a_login_comes_from_our_page_and_is_a_form(files):
    with running("", auth="password", **files) as made, made.browser() as browser:
        form = {"name": "jane", "password": "correct horse"}
        cross = browser.post("/login", data=form, headers={"sec-fetch-site": "cross-site"})
        as_json = browser.post("/login", json=form, headers=SAME)
        fields = browser.post("/login", content="a=1&" * 201, headers={**SAME, **FORM})
        large = browser.post("/login", content=chunks(70), headers={**SAME, **FORM})
        wrong = browser.post("/login", content=b"name=%ff", headers={**SAME, **FORM})

    found = [each.status_code for each in (cross, as_json, fields, large, wrong)]
    assert found == [403, 415, 413, 413, 400]


@covers("attack 16")
def test_after_five_failures_a_minute_an_address_waits_and_no_name_does(files):
    web = {"auth": "password", "trusted_proxies": ("127.0.0.1",), **files}
    with running("", **web) as made, made.browser() as browser:

        def status(name: str, password: str, address: str) -> int:
            browser.cookies.clear()
            answer = log_in(browser, name, password, **{"x-forwarded-for": address})
            if answer.status_code == 429:
                assert 0 < int(answer.headers["retry-after"]) <= 61
            return answer.status_code

        assert [status("jane", "x", f"10.0.0.{n}") for n in range(5)] == [401] * 5
        assert status("jane", "correct horse", "10.0.0.9") == 303
        assert [status(f"guess{n}", "x", "10.0.0.77") for n in range(5)] == [401] * 5
        assert status("joe", "battery staple", "10.0.0.77") == 429
        assert status("joe", "battery staple", "10.0.0.78") == 303
        assert [status("jane", "x", f"10.0.1.{n}") for n in range(20)] == [401] * 20
        assert status("jane", "correct horse", "10.0.0.9") == 429  # of all addresses
        assert made.log.events().count("web.login_refused") == 2


@covers("attack 16")
def test_who_has_logged_in_with_a_browser_is_not_kept_out_by_strangers_of_its_address(files):
    with running("", auth="password", **files) as made, made.browser() as browser:
        assert log_in(browser, "jane", "correct horse").status_code == 303
        browser.post("/logout", headers=SAME)
        with made.browser() as stranger:
            tries = [log_in(stranger, "jane", "x").status_code for _ in range(6)]
            of_joe = log_in(stranger, "joe", "battery staple").status_code
        assert (tries, of_joe) == ([401] * 5 + [429], 429)

        assert nothing(browser) == 303  # the cookie of a known browser opens nothing
        assert log_in(browser, "joe", "battery staple").status_code == 429  # it is jane's
        assert log_in(browser, "jane", "correct horse").status_code == 303
        assert nothing(browser) == 404
        wrong = [log_in(browser, "jane", "x").status_code for _ in range(6)]
        assert wrong == [401] * 5 + [429]  # nor are guesses free there


@covers("attack 16")
def test_a_cookie_that_another_port_has_added_ends_no_login(files):
    with running("", auth="password", **files) as made, made.browser() as browser:
        cookies = log_in(browser, "jane", "correct horse").headers.get_list("set-cookie")
        good = next(each for each in cookies if "known" not in each).partition(";")[0]
        name = good.partition("=")[0]

        for added in (f"{name}=x; {good}", f"{good}; {name}=x.y", f"{name}=; {name}=; {good}"):
            assert httpx.get(f"{made.url}/nothing", headers={"cookie": added}).status_code == 404
    with running("") as made, made.browser() as browser:
        cookie = browser.get(made.link).headers["set-cookie"].partition(";")[0]
        name = cookie.partition("=")[0]
        headers = {"cookie": f"{name}=owned; {cookie}"}
        assert httpx.get(f"{made.url}/nothing", headers=headers).status_code == 404


def test_failures_are_forgotten_after_a_minute_and_a_success_does_not_count():
    failed = FailedLogins()
    home = keys_of("2001:db8::1", None)
    for second in range(5):
        failed.add(home, float(second))
    failed.take_back(home)

    assert failed.wait_s(home, 5.0) == 0
    failed.add(home, 5.0)
    assert failed.wait_s(keys_of("2001:db8::2", None), 6.0) == pytest.approx(54.0)
    assert failed.wait_s(keys_of("2001:db8:1::2", None), 6.0) == 0
    assert failed.wait_s(keys_of("2001:db8::2", "cookie"), 6.0) == 0
    assert failed.wait_s(home, 60.5) == 0
    for number in range(30_000):
        failed.add([ALL, f"address {number}"], 61.0)
    assert len(failed._times) <= 10_000
    assert failed.wait_s([ALL], 62.0) > 0


def test_a_hash_is_of_one_password_and_nobody_has_none():
    hashed = hash_of("ünïcode horse")

    assert is_right("ünïcode horse", hashed)
    assert not is_right("unicode horse", hashed)
    assert not is_right("", None)
    assert hash_of("ünïcode horse") != hashed
    for broken in ("", "scrypt", "plain$1$1$1$a$a", "scrypt$99$8$1$YQ==$YQ==", "scrypt$x$8$1$a$a"):
        assert not is_right("x", broken)


def test_a_session_ends_and_cannot_be_changed():
    sessions = SignedCookies(b"secret")
    cookie = sessions.sign(BrowserSession("jäne", "stamp"), 1000.0)

    assert sessions.read(cookie, 1000.0 + LASTS_S - 1) == BrowserSession("jäne", "stamp")
    assert sessions.read(cookie, 1000.0 + LASTS_S) is None
    assert SignedCookies(b"other").read(cookie, 1000.0) is None
    for position in range(0, len(cookie), 7):
        changed = cookie[:position] + chr(ord(cookie[position]) ^ 1) + cookie[position + 1 :]
        assert sessions.read(changed, 1000.0) is None
    for broken in ("", ".", "a.b", "é.é", "a" * 5000):
        assert sessions.read(broken, 1000.0) is None


def test_programs_send_a_token_and_cookies_do_not_count_then(files, tmp_path):
    tokens = LoginFile(str(tmp_path / "tokens"), "tokens")
    token, login = new_token("ci", may_act=True)
    tokens.put(login)
    with running("", tokens=str(tokens.path)) as made, made.browser() as browser:
        browser.get(made.link)
        good, bad = {"authorization": f"Bearer {token}"}, {"authorization": f"bearer {token}x"}
        statuses = [
            browser.get("/api/1/runs?no=1", headers=each).status_code for each in (good, bad)
        ]
        refused = browser.get("/", headers=bad)
        without = httpx.post(f"{made.url}/nothing", headers=good)  # no page has sent it

        assert statuses == [400, 401]
        assert refused.headers["www-authenticate"] == "Bearer"
        assert without.status_code == 404
        tokens.path.write_text("")
        assert nothing(browser, **good) == 401
        assert nothing(browser) == 404
    assert token not in str(made.log.records)
    with running("") as made, made.browser() as browser:
        browser.get(made.link)
        assert nothing(browser, **good) == 401  # no file of tokens


def test_who_may_act_acts_and_nobody_does_where_it_only_shows(files, tmp_path, database, shop):
    tokens = LoginFile(str(tmp_path / "tokens"), "tokens")
    token, login = new_token("ci", may_act=True)
    tokens.put(login)
    web = {"auth": "password", "tokens": str(tokens.path), **files}
    pause, resume = "/flows/store_items/pause", "/api/1/flows/store_items/resume"
    with running(database.dsn, operator_url=database.dsn, **web) as made:
        with made.browser(**SAME) as jane, made.browser(**SAME) as joe:
            log_in(jane, "jane", "correct horse")
            log_in(joe, "joe", "battery staple")
            by_joe = joe.post(pause, data={"reason": "no"})
            by_jane = jane.post(pause, data={"reason": "too hot"})
            jane.post("/appearance", data={"theme": "dark"})
        headers = {"authorization": f"Bearer {token}"}
        by_ci = httpx.post(made.url + resume, json={}, headers=headers, timeout=30)
        actions = [each for each in made.log.records if each["event"] == "web.action"]
    with running(database.dsn, **web) as made, made.browser(**SAME) as jane:
        log_in(jane, "jane", "correct horse")
        without_an_operator = jane.post(pause, data={"reason": "too hot"})
    with running(database.dsn, operator_url=database.dsn, auth="none") as made:
        by_anybody = made.browser(**SAME).post(pause, data={"reason": "too hot"})

    done = [by_joe, by_jane, by_ci, without_an_operator, by_anybody]
    assert [each.status_code for each in done] == [403, 303, 200, 403, 403]
    assert [(each["user"], each["path"]) for each in actions] == [("jane", pause), ("ci", resume)]
    actors = shop.rows("select actor from pgflowd.actions order by action_id")
    assert actors == [("jane (web)",), ("ci (api)",)]


@pytest.fixture(scope="module")
def behind_a_proxy() -> Iterator[Running]:
    web: dict[str, Any] = {"trusted_proxies": ("127.0.0.0/8", "10.0.0.1"), "operators": ("jane",)}
    with running("", auth="proxy", **web) as made:
        yield made


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (404, ["X-Forwarded-User: jane"]),
        (404, ["X-Forwarded-User: j\xc3\xa4ne"]),
        (404, ["X-Forwarded-User: jane", "Authorization: Bearer of-the-proxy"]),
        (401, []),
        (401, ["X-Forwarded-User:"]),
        (401, ["X-Forwarded-User: jane", "X-Forwarded-User: root"]),
        (401, ["X-Forwarded-User: a\tb"]),
        (401, [f"X-Forwarded-User: {'x' * 201}"]),
        (400, ["X-Forwarded-User: jane", "X_Forwarded_User: root"]),
        (400, ["X-Forwarded-User: jane", "X-Forwarded-Prefix: //evil.example"]),
        (400, ["X-Forwarded-User: jane", "X-Forwarded-Prefix: /a", "X-Forwarded-Prefix: /b"]),
    ],
)
def test_a_proxy_names_the_user_once(behind_a_proxy, status, lines):
    found, _ = behind_a_proxy.ask("Host: localhost", *lines, first="GET /nothing HTTP/1.1")

    assert found == status


def test_a_header_of_somebody_else_is_not_believed():
    web: dict[str, Any] = {"auth": "proxy", "trusted_proxies": ("10.0.0.1", "unix")}
    with running("", **web) as made:
        status, answer = made.ask("Host: localhost", "X-Forwarded-User: jane")

    assert status == 401
    assert "did not come from a trusted proxy" in answer


def test_a_unix_socket_is_a_proxy_if_it_is_named(tmp_path):
    for trusted, status in ((("unix",), 404), (("127.0.0.1",), 401)):
        web: dict[str, Any] = {"auth": "proxy", "trusted_proxies": trusted}
        with running("", unix=tmp_path / f"{status}", listen="unix:/x", **web) as made:
            lines = ["Host: localhost", "X-Forwarded-User: jane"]
            assert made.ask(*lines, first="GET /nothing HTTP/1.1")[0] == status


@pytest.mark.parametrize(
    ("sent", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("10.0.0.1", "10.0.0.1"),
        ("198.51.100.1, unknown", "127.0.0.1"),
        ("unknown, 10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("198.51.100.1\r\nX-Forwarded-For: 203.0.113.9", "203.0.113.9"),
    ],
)
def test_the_last_address_that_is_no_proxy_of_ours_counts(behind_a_proxy, sent, client):
    behind_a_proxy.log.records.clear()
    behind_a_proxy.ask("Host: localhost", f"X-Forwarded-For: {sent}", first="POST / HTTP/1.1")

    assert behind_a_proxy.log.records[-1]["client"] == client


@pytest.mark.parametrize(
    ("web", "path", "status", "root"),
    [
        ({"base_path": "/dash"}, "/dash/nothing", 404, "/dash"),
        ({"base_path": "/dash"}, "/dash", 503, "/dash"),  # the overview, without a database
        ({"base_path": "/dash"}, "/dashboard", 404, ""),
        ({"base_path": "/dash"}, "/nothing", 404, ""),
        ({"trusted_proxies": ("127.0.0.1",)}, "/nothing", 404, "/runs"),
        ({"trusted_proxies": ("127.0.0.1",)}, "/runs/nothing/", 404, "/runs"),
        ({"trusted_proxies": ("10.0.0.1",)}, "/nothing", 404, ""),
    ],
)
def test_a_prefix_is_that_of_the_config_or_of_a_trusted_proxy(web, path, status, root):
    with running("host=/nowhere", auth="none", **web) as made:
        prefix = "X-Forwarded-Prefix: /runs/"
        found, answer = made.ask(
            "Host: localhost", *[prefix] * ("base_path" not in web), first=f"GET {path} HTTP/1.1"
        )

    assert found == status
    assert f'href="{root}/assets/' in answer
    if not root and "base_path" in web:
        assert "X-Forwarded-Prefix" in answer


FORM = {"content-type": "application/x-www-form-urlencoded"}


def chunks(count: int) -> Iterator[bytes]:
    yield from (b"x" * 1024 for _ in range(count))


def log_in(
    client: httpx.Client, name: str, password: str, next: str = "/", path: str = "/login",
    **headers: str,
) -> httpx.Response:  # fmt: skip
    form = {"name": name, "password": password, "next": next}
    return client.post(path, data=form, headers={**SAME, **headers})


@covers("friction 8")
def test_a_read_only_dashboard_says_once_why(files, database, shop):
    shop.start()
    web = {"auth": "password", **files}
    with running(database.dsn, **web) as made, made.browser() as jane:
        log_in(jane, "jane", "correct horse")
        without = jane.get("/runs").text
    with (
        running(database.dsn, operator_url=database.dsn, **web) as made,
        made.browser() as jane,
        made.browser() as joe,
    ):
        log_in(jane, "jane", "correct horse")
        log_in(joe, "joe", "battery staple")
        by_jane, by_joe = jane.get("/runs").text, joe.get("/runs").text
    with running(database.dsn, operator_url=database.dsn, auth="none") as made:
        for_all = made.browser().get("/runs").text

    assert without.count("read only: operator_url in [web] is not set") == 1
    assert by_joe.count("read only: your login may look") == 1
    assert for_all.count("read only: auth in [web] is &#34;none&#34;") == 1
    assert "read only" not in by_jane
