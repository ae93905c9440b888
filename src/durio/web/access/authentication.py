"""Find out who sends a request, by the first credential that it has."""

from starlette.types import Scope

from durio.web.access.hook import user_from_hook
from durio.web.addresses import Origin, is_loopback
from durio.web.identity import Identity, User
from durio.web.site import Site

DEVELOPER = User("dev", "admin")


class Authentication:
    """Looks at each request again, so that a revoked credential ends at once."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def identity_of(self, scope: Scope, origin: Origin) -> Identity | None:
        """Return who sends the request; None if it has no valid credential."""
        options = self.site.options
        if options.auth is not None:
            user = await user_from_hook(options.auth, scope, self.site.report)
            if user is not None:
                return Identity(user, "hook")
        if options.is_dev and is_loopback(origin.address):
            return Identity(DEVELOPER, "dev")
        return None
