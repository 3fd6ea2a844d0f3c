"""The section [web] of the settings: the dashboard. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.settings.forms import BASE_PATH, HEADER, HOST, NETWORK
from pgflowd.core.settings.keys import address, choice, path, secret, text, texts
from pgflowd.core.settings.values import Address, Ref, parse_address


@dataclass(frozen=True)
class WebSettings:
    """The dashboard: where it listens, who may see it, who may act."""

    listen: str = address(
        "127.0.0.1:7460", "where `pgflowd web` listens; others than loopback need a login"
    )
    url: Ref = secret(  # noqa: RUF009
        "the database, for reading, as a member of pgflow_viewer; empty: that of [database]"
    )
    operator_url: Ref = secret(  # noqa: RUF009
        "the database, for actions, as a member of pgflow_operator; empty: nobody acts"
    )
    auth: str = choice(
        "key",
        "key: the link that is printed at the start; password: names and passwords; proxy: a proxy "
        "names the user; none: everybody who reaches it may look",
        "password",
        "proxy",
        "none",
    )
    users: str = path("", "password: the file that `pgflowd web passwd NAME` writes")
    tokens: str = path("", "for programs: the file that `pgflowd web token NAME` writes")
    secret: str = path(
        "",
        "a file with what signs logins, mode 0600, the same for several web processes; empty: new "
        "at each start",
    )
    proxy_user: str = text("proxy: the header that names the user", "X-Forwarded-User", form=HEADER)
    operators: tuple[str, ...] = texts((), "proxy: the users that may act; others may look")
    trusted_proxies: tuple[str, ...] = texts(
        (), 'addresses, networks or "unix": whose headers X-Forwarded-… count', form=NETWORK
    )
    hosts: tuple[str, ...] = texts(
        (), "names by which browsers reach it, besides localhost and the address", form=HOST
    )
    base_path: str = text("the path below which a proxy offers it, such as /flows", form=BASE_PATH)
    payloads: str = choice(
        "redacted",
        "inputs and outputs on pages; redacted: without the keys of logging.redact; hidden: their "
        "sizes only",
        "hidden",
        "shown",
    )

    @property
    def address(self) -> Address:
        """Where to listen."""
        return parse_address(self.listen)
