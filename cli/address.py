"""A gateway's address as a person gives it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cli.exits import USAGE, CommandFailed


def checked(url: str) -> str:
    """The address with its scheme. Raises :class:`CommandFailed` for what is none."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        if (parts.hostname or "").isascii():
            (parts.hostname or "").encode("idna")  # else whoever looks it up raises UnicodeError
        if is_http and parts.port != 0 and not re.search(r"\s", url):
            return parts.geturl().rstrip("/")
    except ValueError:
        pass
    raise CommandFailed(USAGE, f"not a gateway's URL: {url}", hint="such as http://127.0.0.1:8081")


def without_password(url: str) -> str:
    """The address as it may be printed: without a user's name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def proxy_for(url: str) -> str | None:
    """The variable that puts a proxy before this address, if there is one."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    found = next((name for name in (parts.scheme, "all") if name in getproxies()), None)
    return f"{found.upper()}_PROXY" if found else None


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
