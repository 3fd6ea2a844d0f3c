"""
Debian's nginx before a dashboard, with the configuration that docs/operate/dashboard.md shows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgflowd.testing.until import until
from support.pages import blocks_of
from support.servers import free_port

PROGRAM = shutil.which("nginx") or "/usr/sbin/nginx"
AROUND = """\
{user}
daemon off;
worker_processes 1;
pid {place}/nginx.pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    {server}
}}
"""


def server_block(dashboard: int, port: int, users: Path | None) -> str:
    """The page's server, on a port of the test and without https; its second part with users."""
    server, basic = blocks_of("docs/operate/dashboard.md", "nginx")
    assert server.count("listen 443 ssl;") == 1
    server = server.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    server = re.sub(r" *ssl_certificate.*\n", "", server)
    assert server.count("http://127.0.0.1:7460;") == 1
    server = server.replace("http://127.0.0.1:7460;", f"http://127.0.0.1:{dashboard};\n{basic}")
    if users is None:
        return server.replace(basic, "")
    assert server.count("/etc/nginx/flows.htpasswd") == 1
    return server.replace("/etc/nginx/flows.htpasswd", str(users))


@contextmanager
def nginx(place: Path, dashboard: int, users: Path | None = None) -> Iterator[int]:
    """Run nginx before the dashboard on this port; give its own port."""
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    config = place / "nginx.conf"
    config.write_text(
        AROUND.format(place=place, user=user, server=server_block(dashboard, port, users))
    )
    with (place / "nginx.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "-p", str(place), "-c", str(config)], stderr=log)
    try:
        until(lambda: (place / "nginx.pid").exists() or process.poll() is not None, within_s=30)
        assert process.poll() is None, (place / "nginx.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(30)
