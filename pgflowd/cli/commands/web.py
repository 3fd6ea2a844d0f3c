"""
`pgflowd web`: serves the dashboard, and writes the files of its logins.
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group
from pgflowd.core.redact import one_line, secrets_in
from pgflowd.errors import ConfigError, PgflowdError, Problem
from pgflowd.host.config import read
from pgflowd.host.control import SocketInUse, SocketPathError, SocketPlace
from pgflowd.host.logs import open_log
from pgflowd.host.systemd import Notifier

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings
    from pgflowd.core.settings.values import Ref
    from pgflowd.web.login_files import LoginFile

NEEDED = ("starlette", "uvicorn", "httptools", "jinja2", "markdown_it")  # the extra `web`
INSTALL = "pip install 'pgflowd[web]'"
BACKLOG = 1024


class ServedDashboard(TypedDict):
    """
    One line, once it answers. Exit code 75 if the address is in use; 78 for an address that others
    reach without a login (E501), for a file of logins that cannot be used (E502), and without the
    extra `web` (E503).
    """

    listen: Annotated[str, "where it listens"]
    link: Annotated[str, "its address, with the key if it takes one"]


class ChangedLogin(TypedDict):
    name: Annotated[str, "of the user or program"]
    may_act: Annotated[bool, "whether they may act, not only look"]
    file: Annotated[str, "where the logins are"]
    replaced: Annotated[bool, "whether the name had one before"]


class NewToken(ChangedLogin):
    token: Annotated[str, "the token, which is printed this once"]


@click.group(cls=Group, invoke_without_command=True, prints=ServedDashboard)
@click.option("--listen", metavar="ADDRESS", help="Listen here, as 127.0.0.1:7460 or unix:PATH.")
@click.option("--read-only", is_flag=True, help="Let nobody act.")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@click.pass_context
@pass_app
def web(app: App, ctx: click.Context, listen: str | None, read_only: bool, opens: bool) -> None:
    """Serve the dashboard, and print the link that opens it.

    It runs until TERM or Ctrl-C. [web] of the config says where it listens, who may see it and who
    may act. The link holds a key, new at each start; keep it to yourself.

    \b
    Example: pgflowd web --open
             pgflowd web passwd jane --act
    """
    if not is_installed():
        text = "the dashboard needs more packages"
        raise ConfigError([Problem("E503", text, None, INSTALL)])
    if ctx.invoked_subcommand is None:
        app.command_flags["--listen"] = (("web", "listen"), listen)
        _serve(app, is_read_only=read_only, opens=opens)


@web.command(prints=ChangedLogin)
@click.argument("name")
@click.option("--act", is_flag=True, help="They may act, not only look.")
@pass_app
def passwd(app: App, name: str, act: bool) -> None:
    """Set the password of a user, in the file of [web] users.

    Asks for it on a terminal, else reads a line. Logins with the older password end. To remove a
    user, delete the line.

    \b
    Example: pgflowd web passwd jane --act
    """
    from pgflowd.web.auth import LEAST_CHARS, MAX_CHARS, hash_of
    from pgflowd.web.login_files import LoginLine

    file = _login_file(app, "users", name)
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not LEAST_CHARS <= len(password) <= MAX_CHARS:
        raise click.UsageError(f"a password has at least {LEAST_CHARS} characters")
    replaced = file.put(LoginLine(name, act, hash_of(password)))
    rights = "look and act" if act else "look"
    done = "has a new password" if replaced else "is added"
    document = ChangedLogin(name=name, may_act=act, file=str(file.path), replaced=replaced)
    app.print_result(f"{name} {done}, and may {rights}", document)


@web.command(prints=NewToken)
@click.argument("name")
@click.option("--act", is_flag=True, help="It may act, not only look.")
@pass_app
def token(app: App, name: str, act: bool) -> None:
    """Make a token for a program, which sends it as "Authorization: Bearer TOKEN".

    It is printed once; the file of [web] tokens has its hash. A new one of the same name replaces
    it. To remove one, delete the line.

    \b
    Example: pgflowd web token ci
    """
    from pgflowd.web.login_files import new_token

    file = _login_file(app, "tokens", name)
    made, login = new_token(name, may_act=act)
    replaced, place = file.put(login), str(file.path)
    document = NewToken(name=name, may_act=act, file=place, replaced=replaced, token=made)
    app.print_result(made, document)


def is_installed() -> bool:
    """Whether the extra `web` is there."""
    return all(find_spec(name) is not None for name in NEEDED)


def _serve(app: App, *, is_read_only: bool, opens: bool) -> None:
    import setproctitle

    from pgflowd.web.server import serve, served

    settings = app.settings
    level = "debug" if app.verbose else "warning" if app.quiet else settings.logging.level
    logging = replace(settings.logging, level=level)
    log = open_log(logging, process="web", name=settings.pgflowd.name)
    url = _url(app, settings.web.url, "url") or app.database_url
    operator_url = "" if is_read_only else _url(app, settings.web.operator_url, "operator_url")
    log.hide(app.secrets)
    made = served(
        settings.web, url=url, operator_url=operator_url, owner=_owner(), write=log.write,
        redact=settings.logging.redact,
        read_only="it was started with --read-only" if is_read_only else "",
    )  # fmt: skip
    address = settings.web.address
    host = f"[{address.host}]" if ":" in address.host else address.host
    start = f"unix:{address.path}:" if address.path else f"http://{host}:{address.port}"
    link = f"{start}{settings.web.base_path}/" + (f"?key={made.key}" if made.key else "")
    notifier = Notifier()
    setproctitle.setproctitle(f"{settings.pgflowd.name}: web")

    def tell() -> None:
        notifier.ready(f"listens at {settings.web.listen}")
        log.info("web.started", listen=settings.web.listen, auth=settings.web.auth)
        if app.json:
            app.print_json_line(ServedDashboard(listen=settings.web.listen, link=link))
        else:
            app.print(f"dashboard  {link}")
            app.note("  Ctrl-C ends it")
            sys.stdout.flush()
        if opens:
            directory = ends.enter_context(tempfile.TemporaryDirectory(prefix="pgflowd-"))
            _open(link, Path(directory, "dashboard.html"))

    def end() -> None:
        notifier.stopping("ends")
        made.dashboard.end()

    with _listening(settings) as listener, ExitStack() as ends:
        serve(made.application, listener, log.write, on_ready=tell, on_end=end)
    log.info("web.stopped")


def _open(link: str, page: Path) -> None:
    """
    Open the link in a browser. Others can see the words of its command line, so it gets the address
    of a page that we alone can read, and that leads on.
    """
    page.write_text(f'<meta http-equiv="refresh" content="0;url={link}">', encoding="ascii")
    browse = partial(webbrowser.open, page.as_uri())
    threading.Thread(target=browse, daemon=True).start()  # one in a terminal would wait


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Yield the listening socket. E510: it cannot be had."""
    address, ends = settings.web.address, ExitStack()
    try:
        if address.path:
            place = SocketPlace(Path(address.path), BACKLOG)
            listener = place.listener
            ends.callback(place.leave)
            if settings.web.auth in ("password", "proxy"):
                Path(address.path).chmod(0o660)  # for the group, in which a proxy may be
        else:
            where = (address.host, address.port)
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listener = socket.create_server(where, family=family, backlog=BACKLOG)
            ends.enter_context(listener)
    except (OSError, SocketInUse, SocketPathError) as error:
        why = "another process has it" if isinstance(error, SocketInUse) else str(error)
        text = f"[web] listen = {settings.web.listen} cannot be used: {one_line(why, 200)}"
        remedy = "end who has it, or name another address with --listen"
        raise PgflowdError(text, code="E510", next=remedy) from None
    with ends:
        yield listener


def _url(app: App, ref: Ref, key: str) -> str:
    url = read(ref, place=f"[web] {key}")
    app.secrets.update(secrets_in(url))
    return url


def _owner() -> str:
    """The user of this process, who has the link."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _login_file(app: App, key: str, name: str) -> LoginFile:
    """The file of [web] users or tokens, for a line with this name."""
    from pgflowd.web.login_files import LoginFile, is_name

    path: str = getattr(app.settings.web, key)
    if not path:
        remedy = f'write {key} = "/etc/pgflowd/{key}" in [web]'
        raise ConfigError([Problem("E502", f"[web] {key} names no file", None, remedy)])
    if not is_name(name):
        raise click.UsageError(
            f"'{one_line(name, 60)}' is not a name: at most 64 characters, no blanks and no ':'"
        )
    return LoginFile(path, key)
