"""The choices of a dashboard."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import InvalidOption

Hook = Callable[..., Any]
PORT = 7700
TITLE_CHARS_MAX = 60
BADGE_CHARS_MAX = 24
COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]{3,30}", re.ASCII)
LINK = re.compile(r"https?://\S+", re.ASCII)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """What `app.dashboard(...)` and `durio dashboard` choose."""

    auth: Hook | None = None  # the host application's users
    title: str = "Durio"
    badge: tuple[str, str] | None = None  # text and colour of the environment
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    mask: Hook | None = None  # hides fields of arguments, meta and results
    embed_in: Sequence[str] = ()  # origins that may show the page in a frame
    # None: any host, because a host application has the page mounted.
    allowed_hosts: Sequence[str] | None = None
    trusted_proxies: Sequence[str] = ()
    root_path: str = ""  # used if the server gives none
    is_basic: bool = False  # HTTP Basic with the same users
    is_read_only: bool = False
    is_dev: bool = False  # no login; the server must listen on loopback
    port: int = PORT  # that `is_dev` listens on

    def __post_init__(self) -> None:
        """Refuse what cannot be, where it is written."""
        for name in ("auth", "mask"):
            hook = getattr(self, name)
            check(hook is None or callable(hook), name, hook, "Give a function.")
        check(
            0 < len(self.title) <= TITLE_CHARS_MAX,
            "title",
            self.title,
            f"Give 1 to {TITLE_CHARS_MAX} characters.",
        )
        check(
            self.badge is None or is_badge(self.badge),
            "badge",
            self.badge,
            f'Give 1 to {BADGE_CHARS_MAX} characters and a colour: ("live", "red").',
        )
        for link in self.links.values():
            is_link = LINK.fullmatch(link) is not None
            check(is_link, "links", link, "Give addresses with https:// or http://.")
        for origin in self.embed_in:
            is_origin = ORIGIN.fullmatch(origin) is not None
            check(
                is_origin, "embed_in", origin, "Give origins: https://ops.example.com"
            )


def is_badge(badge: Any) -> bool:
    match badge:
        case (str(text), str(color)):
            is_text = 0 < len(text) <= BADGE_CHARS_MAX
            return is_text and COLOR.fullmatch(color) is not None
        case _:
            return False


def check(fits: object, name: str, value: object, cure: str) -> None:
    if not fits:
        raise InvalidOption(f"{name} cannot be {value!r:.100}", cure=cure)
