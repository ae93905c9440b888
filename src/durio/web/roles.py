"""Roles: each route says which one it needs, and which verb it is for the audit.

A route takes its first parameter from here. A GET has `Viewer`, or another role; a route
that changes something has `Annotated[WebCall, may("retry")]`, with a verb of `VERBS`.
`checked_routes` refuses to start with a route that has neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from durio.model.errors import InvariantBroken
from durio.web.call import WebCall
from durio.web.identity import Role
from durio.web.problems import Refusal

# Every change, by the role that may do it. The page shows what `admin/me` says of them.
VERBS: dict[str, Role] = {
    "enqueue": "operator",
    "retry": "operator",
    "cancel": "operator",
    "run_now": "operator",
    "duplicate": "operator",
    "pause_queue": "operator",
    "close_queue": "operator",
    "pause_schedule": "operator",
    "run_schedule": "operator",
    "cancel_plan": "operator",
    "retry_plan": "operator",
    "drain_worker": "operator",
    "stack_worker": "operator",
    "change_breaker": "operator",
    "mute_error": "operator",
    "bulk": "operator",
    "stop_bulk": "operator",
    "retry_edited": "admin",
    "discard": "admin",
    "purge_queue": "admin",
    "move_queue": "admin",
    "bound_queue": "admin",
    "change_limit": "admin",
    "change_schedule": "admin",
    "backfill_schedule": "admin",
    "change_users": "admin",
    "change_tokens": "admin",
}
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class Need:
    """What a request needs to reach a route."""

    role: Role
    verb: str | None = None  # None: the route changes nothing
    purpose: str | None = None  # of a token that needs no role for this route

    async def __call__(self, request: Request) -> WebCall:
        """Return the call, or refuse it."""
        call: WebCall = request.scope["durio.call"]
        if not call.identity.may_reach(self.role, self.purpose):
            raise Refusal(
                403,
                "role_too_low",
                f"this needs the role {self.role}, which {call.user.name} does not have",
                "Ask an admin of this dashboard.",
            )
        if self.verb is not None:
            call.begin_change(self.verb)
        return call


def needs(role: Role) -> Any:
    """Declare the role of a route that changes nothing."""
    return Depends(Need(role))


def may(verb: str, *, purpose: str | None = None) -> Any:
    """Declare that a route changes something: its verb, which has a role in `VERBS`."""
    return Depends(Need(VERBS[verb], verb, purpose))


Viewer = Annotated[WebCall, needs("viewer")]
Operator = Annotated[WebCall, needs("operator")]
Admin = Annotated[WebCall, needs("admin")]


class ApiRoute(NamedTuple):
    """A route of the API, for checks, tests and the page."""

    method: str
    path: str
    need: Need


def checked_routes(routers: Sequence[APIRouter], prefix: str) -> list[ApiRoute]:
    """Return every route with its role; raises InvariantBroken if one declares none."""
    found: list[ApiRoute] = []
    for route in (each for router in routers for each in router.routes):
        if not isinstance(route, APIRoute):
            raise InvariantBroken(f"{route!r} is not a route of the API")
        needed = [
            each.call
            for each in route.dependant.dependencies
            if isinstance(each.call, Need)
        ]
        if len(needed) != 1:
            raise InvariantBroken(
                f"the route {route.path} declares {len(needed)} roles, not one",
                cure="Give it a first parameter of durio.web.roles.",
            )
        found += [
            ApiRoute(method, prefix + route.path_format, needed[0])
            for method in sorted(route.methods or ())
        ]
    for each in found:
        if each.method in READING and each.need.verb is not None:
            raise InvariantBroken(f"GET {each.path} would change something")
    return found
