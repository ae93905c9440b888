"""Find out who sends a request, by the first credential that it has.

1. `Authorization: Bearer durio_...`: a token. A wrong one is refused, whatever else is sent.
2. `Authorization: Basic ...`, with `--basic`: a user.
3. The cookie of a session.
4. The hook of the host application.
5. `dev`: anybody on this machine.

Nothing is remembered between requests: a revoked credential ends at once.
"""

from starlette.types import Scope

from durio.web.access.basic import BasicLogin
from durio.web.access.cookies import cookie_of, session_cookie
from durio.web.access.hook import user_from_hook
from durio.web.access.sessions import Sessions
from durio.web.access.throttle import Throttle
from durio.web.access.tokens import PREFIX, Tokens
from durio.web.access.users import Users
from durio.web.addresses import Origin, header_values, is_loopback
from durio.web.identity import Identity, User
from durio.web.site import Site

DEVELOPER = User("dev", "admin")


class Authentication:
    """Looks at the credential of each request again."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.basic = BasicLogin(site.app.clock) if site.options.is_basic else None

    async def identity_of(self, scope: Scope, origin: Origin) -> Identity | None:
        """Return who sends the request; None if it has no valid credential."""
        scheme, _, value = " ".join(header_values(scope, b"authorization")).partition(
            " "
        )
        if scheme.lower() == "bearer" and value.startswith(PREFIX):
            return await self.by_token(value)
        if scheme.lower() == "basic" and self.basic is not None:
            return await self.by_password(self.basic, value, origin)
        return (
            await self.by_session(scope)
            or await self.by_hook(scope)
            or self.by_place(origin)
        )

    async def by_token(self, text: str) -> Identity | None:
        app = self.site.app
        tokens = Tokens(await self.site.store(), app.name, app.clock)
        token = await tokens.find(text)
        return None if token is None else token.identity()

    async def by_password(
        self, basic: BasicLogin, value: str, origin: Origin
    ) -> Identity | None:
        app, store = self.site.app, await self.site.store()
        users, throttle = (
            Users(store, app.name, app.clock),
            Throttle(store, app.name, app.clock),
        )
        user = await basic.user_of(value, origin.address, users, throttle)
        return None if user is None else Identity(user.user(), "basic", user.generation)

    async def by_session(self, scope: Scope) -> Identity | None:
        app = self.site.app
        session_id = cookie_of(scope, session_cookie(app.name, scope))
        if not session_id:
            return None
        sessions = Sessions(await self.site.store(), app.name, app.clock)
        live = await sessions.find(session_id)
        return (
            None if live is None else Identity(live.user.user(), "session", live.name)
        )

    async def by_hook(self, scope: Scope) -> Identity | None:
        hook = self.site.options.auth
        if hook is None:
            return None
        user = await user_from_hook(hook, scope, self.site.report)
        return None if user is None else Identity(user, "hook")

    def by_place(self, origin: Origin) -> Identity | None:
        """Return the developer, if the server is for this machine alone."""
        is_here = self.site.options.is_dev and is_loopback(origin.address)
        return Identity(DEVELOPER, "dev") if is_here else None
