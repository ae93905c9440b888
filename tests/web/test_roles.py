"""The matrix of roles, made from the table of routes: each refuses whom it should."""

import re
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends

from durio import App
from durio.errors import InvariantBroken
from durio.web import User
from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.application import build_api
from durio.web.call import WebCall
from durio.web.identity import ROLES
from durio.web.roles import READING, VERBS, ApiRoute, Viewer, checked_routes, may
from tests.unit.app.app_harness import virtual
from tests.web.browser import browser, dashboard
from tests.web.logins import token_of

ROUTES = checked_routes(ROUTERS, PREFIX)
every_route = pytest.mark.parametrize(
    "route", ROUTES, ids=lambda route: f"{route.method} {route.path}"
)


def address(route: ApiRoute) -> str:
    return re.sub(r"\{[^}]*\}", "x", route.path)


async def status_of(client: Any, route: ApiRoute) -> tuple[int, str]:
    body = {} if route.method in READING else {"json": {}}
    answer = await client.request(route.method, address(route), **body)
    is_problem = answer.status_code >= 400
    return answer.status_code, answer.json()["code"] if is_problem else ""


@every_route
def test_each_role_reaches_what_it_may(route: ApiRoute):
    @virtual(name="shop")
    async def ask(app: App):
        for role in ROLES:
            async with browser(dashboard(app, User("ann", role))) as client:
                status, code = await status_of(client, route)
            if ROLES.index(role) < ROLES.index(route.need.role):
                assert (status, code) == (403, "role_too_low"), role
            else:
                assert status not in (401, 403, 405, 500), (role, status, code)
        async with browser(dashboard(app)) as client:
            assert await status_of(client, route) == (401, "not_logged_in")

    ask()


@every_route
def test_a_purpose_reaches_its_route_alone(route: ApiRoute):
    @virtual(name="shop")
    async def ask(app: App):
        text = await token_of(app, purposes=("enqueue", "work", "metrics", "scale"))
        headers = {"Authorization": f"Bearer {text}"}
        async with browser(dashboard(app), headers=headers) as client:
            status, _ = await status_of(client, route)
        assert (status == 403) is (route.need.purpose is None)

    ask()


@every_route
def test_a_read_only_dashboard_changes_nothing(route: ApiRoute):
    @virtual(name="shop")
    async def ask(app: App):
        served = dashboard(app, User("ann", "admin"), is_read_only=True)
        async with browser(served) as client:
            status, code = await status_of(client, route)
        assert ((status, code) == (409, "read_only")) is (route.need.verb is not None)

    ask()


def test_every_route_is_in_the_table():
    """The framework knows no route of the API that the table does not know."""
    known = {(route.method.lower(), route.path) for route in ROUTES}
    served = {
        (method, path)
        for path, methods in build_api().openapi()["paths"].items()
        for method in methods
    }
    assert served == known
    assert {"POST"} <= {route.method for route in ROUTES}


def test_every_verb_is_of_a_role():
    assert set(VERBS.values()) == {"operator", "admin"}
    assert {route.need.verb for route in ROUTES} - {None} <= VERBS.keys()


# --- routes that must not start


async def without_role() -> None: ...


async def with_two_roles(
    call: Viewer, again: Annotated[WebCall, may("retry")]
) -> None: ...


async def changing(call: Annotated[WebCall, may("retry")]) -> None: ...


def one() -> int:
    return 1


async def with_another_dependency(value: Annotated[int, Depends(one)]) -> None: ...


@pytest.mark.parametrize(
    "endpoint", [without_role, with_two_roles, changing, with_another_dependency]
)
def test_a_route_without_its_role_does_not_start(endpoint: Any):
    router = APIRouter()
    router.get("/things")(endpoint)
    with pytest.raises(InvariantBroken):
        checked_routes([router], PREFIX)


def test_a_mounted_application_is_no_route():
    router = APIRouter()
    router.mount("/things", lambda *_: None)
    with pytest.raises(InvariantBroken):
        checked_routes([router], PREFIX)
