"""
The dashboard, served by uvicorn in a thread, and a browser.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from support.shop import Shop

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until
from pgflowd.web import User, app


@pytest.fixture
def shop(database: ScratchDatabase) -> Shop:
    """A database with three flows: a diamond, a map of the input, and a job."""
    made = Shop(database)
    made.deploy()
    return made


@pytest.fixture
def web(database: ScratchDatabase) -> Iterator[httpx.Client]:
    """A client of the dashboard of the test's database, without a browser."""
    with (
        serving(app(database.dsn, user=anybody)) as address,
        httpx.Client(base_url=address, headers=OF_OUR_PAGE, timeout=30) as client,
    ):
        yield client


OF_OUR_PAGE = {"sec-fetch-site": "same-origin"}


async def anybody(scope: Any) -> User:
    """Everybody who comes may look and act."""
    return User("jane", may_act=True)


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve an application until the end of the test; give its address."""
    with ExitStack() as stack:
        yield lambda application: stack.enter_context(serving(application))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's browser. Its driver has an event loop, so that later modules could have none."""
    path = shutil.which("chromium")
    assert path, "the tests of pages need a browser; run: sudo apt-get install chromium"
    flags = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        yield running
        running.close()


@pytest.fixture
def tabs(browser: Browser) -> Iterator[BrowserContext]:
    """A window of the browser: `tabs.new_page()`. What a page says to the console is a mistake."""
    said: list[str] = []
    context = browser.new_context()
    context.on("console", lambda message: said.append(f"{message.text} {message.location}"))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    yield context
    context.close()
    assert said == []


@contextmanager
def serving(application: Callable) -> Iterator[str]:
    """Serve an application on a free port; give its address."""
    config = uvicorn.Config(
        application, port=0, http="httptools", lifespan="off", log_level="error"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, within_s=10)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
