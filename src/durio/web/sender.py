"""Whether our own page has sent a request (CSRF)."""

from starlette.types import Scope

from durio.web.addresses import Origin, header_values
from durio.web.problems import Refusal


def check_same_origin(scope: Scope, origin: Origin) -> None:
    """A browser says where a request comes from; a page cannot change what it says."""
    sites = header_values(scope, b"sec-fetch-site")
    origins = header_values(scope, b"origin")
    if sites != ["same-origin"] and (sites or origins != [origin.text]):
        raise Refusal(
            403,
            "cross_site",
            "the request does not come from this dashboard's own page",
            "Send it from the page, or with a token.",
        )
