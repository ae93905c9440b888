"""What every request passes before a route sees it.

1. The answer gets the security headers, whoever makes it.
2. `Host` must be ours, and there must be exactly one.
3. Without a credential only the page's shell, its assets, the login and health answer.
4. A change needs `Content-Type: application/json`; if a browser adds the credential by
   itself, also a sign that our own page has sent it.
5. The body is limited, uncompressed, and strict JSON.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from durio.model.errors import DurioError
from durio.web.access.authentication import Authentication
from durio.web.access.login import Login
from durio.web.addresses import (
    Origin,
    Proxies,
    dev_hosts,
    header_values,
    is_allowed,
)
from durio.web.body import Disconnected, read_body, replayed
from durio.web.call import WebCall
from durio.web.headers import completed, security_headers
from durio.web.mount import path_inside, root_path, with_root
from durio.web.pages import Pages
from durio.web.problems import Refusal, internal_error, not_logged_in, refusal_of
from durio.web.roles import READING
from durio.web.sender import check_same_origin
from durio.web.site import Site
from durio.web.strict_json import check_json

METHODS = READING | {"POST", "PUT", "PATCH", "DELETE"}
JSON = "application/json"
BROWSER_CHARS_MAX = 200
TOKEN_IN_ADDRESS = re.compile(rb"durio_[0-9a-f]{8,32}_[\w-]{20}")


class Guard:
    """The outermost part of the application."""

    def __init__(
        self, site: Site, api: ASGIApp, pages: Pages, authentication: Authentication
    ) -> None:
        self.site = site
        self.api = api
        self.pages = pages
        self.authentication = authentication
        self.login = Login(site)
        options = site.options
        self.proxies = Proxies(options.trusted_proxies)
        self.security = security_headers(options.embed_in)
        self.allowed = (
            dev_hosts(options.port) if options.is_dev else options.allowed_hosts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope = with_root(scope, self.site.options.root_path)
        has_started = False

        async def guarded(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = completed(list(message.get("headers", ())), self.security)
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.answer(scope, receive, guarded)
        except Disconnected:
            return
        except Refusal as refusal:
            await refusal.response()(scope, receive, guarded)
        except DurioError as error:
            await refusal_of(error).response()(scope, receive, guarded)
        except Exception as error:
            self.site.report(error)
            if has_started:
                raise
            await internal_error().response()(scope, receive, guarded)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = path_inside(scope), str(scope["method"])
        origin = self.proxies.origin(scope)
        if method not in METHODS:
            raise Refusal(405, "method_not_allowed", f"{method!r:.20} is not used here")
        if self.pages.is_health(path):
            await self.pages.answer(scope, receive, send)
            return
        self.check_host(origin)
        check_address(scope)
        if self.pages.is_public(path):
            await self.pages.answer(scope, receive, send)
            return
        if self.login.is_login(path):
            answer = await self.login.answer(path, scope, receive, origin)
            await answer(scope, receive, send)
            return
        call = await self.call_of(scope, origin)
        if method not in READING:
            if call.identity.sends_cookies:
                check_same_origin(scope, origin)
            body = await read_body(scope, receive)
            check_type(scope)
            if body:
                check_json(body)
            receive = replayed(body, receive)
        await self.api({**scope, "durio.call": call}, receive, send)

    def check_host(self, origin: Origin) -> None:
        if self.allowed is not None and not is_allowed(origin.host, self.allowed):
            raise Refusal(
                421,
                "wrong_host",
                f"this dashboard does not answer to the host {origin.host!r:.100}",
                "Use an address that it knows, or add the host: --allowed-hosts.",
            )

    async def call_of(self, scope: Scope, origin: Origin) -> WebCall:
        """Return the call with its user; refuse a request without a credential."""
        identity = await self.authentication.identity_of(scope, origin)
        if identity is None:
            raise not_logged_in(with_basic=self.site.options.is_basic)
        browser = " ".join(header_values(scope, b"user-agent"))[:BROWSER_CHARS_MAX]

        async def still_valid() -> bool:
            return await self.authentication.identity_of(scope, origin) == identity

        return WebCall(
            self.site,
            identity,
            address=origin.address,
            browser=browser,
            root=root_path(scope),
            still_valid=still_valid,
        )


def check_address(scope: Scope) -> None:
    """Refuse a token in the address, which servers and proxies write to their logs."""
    if TOKEN_IN_ADDRESS.search(scope.get("query_string", b"")):
        raise Refusal(
            400,
            "token_in_address",
            "a token in an address ends up in logs: this one should be revoked",
            "Send it as a header: Authorization: Bearer durio_...",
        )


def check_type(scope: Scope) -> None:
    """Require JSON, which a form of another site cannot send."""
    types = header_values(scope, b"content-type")
    kinds = [each.partition(";")[0].strip().lower() for each in types]
    if kinds != [JSON]:
        raise Refusal(
            415,
            "content_type",
            "a change needs the header Content-Type: application/json",
            "Send JSON.",
        )
