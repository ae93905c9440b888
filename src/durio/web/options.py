"""The choices of a dashboard."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Hook = Callable[..., Any]
PORT = 7700


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """What `app.dashboard(...)` and `durio dashboard` choose."""

    auth: Hook | None = None  # the host application's users
    title: str = "Durio"
    badge: tuple[str, str] | None = None  # text and colour of the environment
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    mask: Hook | None = None  # hides fields of arguments, meta and results
    embed_in: tuple[str, ...] = ()  # origins that may show the page in a frame
    # None: any host, because a host application has the page mounted.
    allowed_hosts: tuple[str, ...] | None = None
    trusted_proxies: tuple[str, ...] = ()
    root_path: str = ""  # used if the server gives none
    is_basic: bool = False  # HTTP Basic with the same users
    is_read_only: bool = False
    is_dev: bool = False  # no login; the server must listen on loopback
    port: int = PORT  # that `is_dev` listens on
