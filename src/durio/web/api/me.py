"""`admin/me`: who I am, what I may do, and what this dashboard is."""

from fastapi import APIRouter

from durio.app.connect import masked, scheme_of
from durio.model.version import __version__
from durio.web.api.shapes import Answer
from durio.web.identity import Role, Via
from durio.web.roles import VERBS, Viewer

router = APIRouter(tags=["me"])


class Badge(Answer):
    text: str
    color: str


class StoreName(Answer):
    kind: str
    url_redacted: str


class Me(Answer):
    user: str
    role: Role
    via: Via
    payloads: bool
    read_only: str | None  # why nothing can be changed here
    may: dict[str, bool]  # by verb
    queues: list[str] | None  # None: every queue
    app: str
    version: str
    title: str
    badge: Badge | None
    links: dict[str, str]
    store: StoreName


@router.get("/me")
async def show_me(call: Viewer) -> Me:
    """Return the user, the rights, and the names of this dashboard."""
    user, site, app = call.user, call.site, call.app
    options, reason = site.options, await site.why_read_only()
    return Me(
        user=user.name,
        role=user.role,
        via=call.identity.via,
        payloads=user.sees_payloads,
        read_only=reason,
        may={verb: reason is None and user.has(role) for verb, role in VERBS.items()},
        queues=None if user.queues is None else list(user.queues),
        app=app.name,
        version=__version__,
        title=options.title,
        badge=options.badge and Badge(text=options.badge[0], color=options.badge[1]),
        links=dict(options.links),
        store=StoreName(kind=scheme_of(app.url), url_redacted=masked(app.url)),
    )
