"""The made parts of the reference pages of the dashboard: its roles, and its routes."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.application import build_api
from durio.web.identity import ROLES
from durio.web.roles import VERBS, ApiRoute, checked_routes

Document = dict[str, Any]  # a part of the OpenAPI document


def made_web_roles() -> Iterator[str]:
    """A table of what each role may change."""
    yield "| action | " + " | ".join(ROLES) + " |"
    yield "|---|" + "---|" * len(ROLES)
    for verb, needed in VERBS.items():
        least = ROLES.index(needed)
        marks = ["yes" if n >= least else "" for n in range(len(ROLES))]
        yield f"| `{verb}` | " + " | ".join(marks) + " |"


def made_http_api() -> Iterator[str]:
    """Each route with its role, what it takes, and what it answers."""
    document = build_api().openapi()
    routes = checked_routes(ROUTERS, PREFIX)
    for area, group in groupby(routes, key=lambda route: area_of(route, document)):
        yield from ("", f"## {area}", "")
        for route in group:
            yield from described(route, document)


def area_of(route: ApiRoute, document: Document) -> str:
    return operation(route, document)["tags"][0].capitalize()


def operation(route: ApiRoute, document: Document) -> Document:
    return document["paths"][route.path][route.method.lower()]


def described(route: ApiRoute, document: Document) -> Iterator[str]:
    """One route: its heading, what it does, its role, its parts."""
    found = operation(route, document)
    yield from (f"### {route.method} {route.path}", "")
    said = " ".join(found["description"].split())
    yield from (f"{said} Needs the role {route.need.role}.", "")
    query = [each for each in found.get("parameters", ()) if each["in"] != "path"]
    if query:
        names = ", ".join(f"`{each['name']}`" for each in query)
        yield from (f"Parameters: {names}.", "")
    body = found.get("requestBody")
    if body is not None:
        yield from fields("Body", body["content"], document)
    for status, answer in found["responses"].items():
        if status.startswith("2"):
            yield from fields(f"Answer {status}", answer.get("content", {}), document)


def fields(title: str, content: Document, document: Document) -> Iterator[str]:
    """The names of the fields of a body; a field that may be left out has a `?`."""
    for kind, part in content.items():
        shape = resolved(part.get("schema", {}), document)
        needed = set(shape.get("required", ()))
        names = [
            f"`{name}`" if name in needed else f"`{name}?`"
            for name in shape.get("properties", {})
        ]
        yield from (f"{title}: {', '.join(names) or f'`{kind}`'}.", "")


def resolved(schema: Document, document: Document) -> Document:
    """Follow a reference to the schema that it names."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema


MAKE = {"web_roles": made_web_roles, "http_api": made_http_api}
