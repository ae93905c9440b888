"""Log in and out with plain forms.

A form has a one-time value that is in a cookie too, and must come from our own page. The
session gets a new id at each login. Tries are limited before a password is hashed.
"""

import base64
import hashlib
import hmac
import re
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope

from durio.model.errors import StoreReadOnly
from durio.web.access.cookies import (
    cookie_of,
    login_cookie,
    session_cookie,
    set_cookie,
)
from durio.web.access.login_page import login_page, logout_page
from durio.web.access.passwords import is_right, password_bytes
from durio.web.access.sessions import Sessions
from durio.web.access.throttle import Throttle
from durio.web.addresses import Origin, header_values
from durio.web.body import read_body
from durio.web.mount import base_address, base_element, root_path
from durio.web.problems import Refusal
from durio.web.sender import check_same_origin
from durio.web.site import Site

LOGIN, LOGOUT = "/login", "/logout"
FORM_BYTES_MAX = 16 * 1024
FIELDS_MAX = 8
FORM = "application/x-www-form-urlencoded"
ONCE_BYTES = 18
# A path inside the mount: no scheme, no host, no step up.
NEXT = re.compile(r"[\w-][\w.~%-]*(?:/[\w.~%:-]*)*(?:\?[\w.~%:&=+,*/-]*)?", re.ASCII)
SEE_OTHER = 303
NO_USERS = (
    "There is no user yet. Make the first one where the store can be reached: "
    "durio users add NAME --role admin"
)
READ_ONLY = "The store is read-only: here only tokens and the host's login work."


class Login:
    """Answers `/login` and `/logout`."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def is_login(self, path: str) -> bool:
        return path in (LOGIN, LOGOUT)

    async def answer(
        self, path: str, scope: Scope, receive: Receive, origin: Origin
    ) -> Response:
        """Show a form, or do what it asks for."""
        is_post = scope["method"] == "POST"
        if not is_post and scope["method"] != "GET":
            raise Refusal(405, "method_not_allowed", "a form is read or sent")
        if path == LOGIN:
            if is_post:
                return await self.log_in(scope, receive, origin)
            asked = Request(scope).query_params.get("next", "")
            return await self.login_form(scope, origin, following=asked)
        if is_post:
            return await self.log_out(scope, receive, origin)
        return await self.logout_form(scope)

    # --- in

    async def login_form(
        self,
        scope: Scope,
        origin: Origin,
        *,
        following: str = "",
        user: str = "",
        error: str = "",
        status: int = 200,
    ) -> Response:
        sessions, app = await self.sessions(), self.site.app
        name = login_cookie(app.name, scope)
        raw = app.clock.secret_bytes(ONCE_BYTES)
        once = cookie_of(scope, name) or base64.urlsafe_b64encode(raw).decode()
        answer = login_page(
            base=base_element(scope),
            title=self.site.options.title,
            app=app.name,
            once=once,
            following=path_in_mount(scope, following),
            user=user,
            error=error,
            hint=NO_USERS if await sessions.users.is_empty() else "",
            status=status,
        )
        answer.headers.append("set-cookie", set_cookie(scope, origin, name, once))
        return answer

    async def log_in(self, scope: Scope, receive: Receive, origin: Origin) -> Response:
        fields = await self.fields(scope, receive, origin)
        cookie = cookie_of(scope, login_cookie(self.site.app.name, scope))
        user, following = fields.get("user", ""), fields.get("next", "")

        async def again(error: str, status: int) -> Response:
            return await self.login_form(
                scope,
                origin,
                following=following,
                user=user,
                error=error,
                status=status,
            )

        if not is_same(fields.get("once", ""), cookie):
            return await again("This form was too old. Please try again.", 403)
        password = fields.get("password", "")
        if not user or password_bytes(password) is None:
            return await again("Wrong user name or password.", 401)
        try:
            session_id, wait = await self.try_login(user, password, origin)
        except StoreReadOnly:
            return await again(READ_ONLY, 409)
        if wait is not None:
            answer = await again(f"Too many tries. Wait {wait:.0f} s.", 429)
            answer.headers["retry-after"] = f"{wait:.0f}"
            return answer
        if session_id is None:
            return await again("Wrong user name or password.", 401)
        return await self.welcome(scope, origin, session_id, following)

    async def try_login(
        self, name: str, password: str, origin: Origin
    ) -> tuple[str | None, float | None]:
        """Return the id of a new session; or None, and the seconds to wait if it is that."""
        app, sessions = self.site.app, await self.sessions()
        throttle = Throttle(sessions.store, app.name, app.clock)
        wait = await throttle.begin(name, origin.address)
        if wait is not None:
            return None, wait
        found = await sessions.users.find(name)
        if (
            not await is_right(password, None if found is None else found.user.password)
            or found is None
        ):
            return None, None
        await throttle.succeed(name, origin.address)
        session_id = await sessions.begin(found.user)
        await sessions.users.note_login(found)
        return session_id, None

    async def welcome(
        self, scope: Scope, origin: Origin, session_id: str, following: str
    ) -> Response:
        """Give the browser its session, end the one it had, and go on."""
        app = self.site.app
        name = session_cookie(app.name, scope)
        old = cookie_of(scope, name)
        if old:
            await (await self.sessions()).end(old)
        answer = self.redirect(scope, path_in_mount(scope, following))
        answer.headers.append("set-cookie", set_cookie(scope, origin, name, session_id))
        once = login_cookie(app.name, scope)
        answer.headers.append("set-cookie", set_cookie(scope, origin, once, ""))
        return answer

    # --- out

    async def logout_form(self, scope: Scope) -> Response:
        session_id = cookie_of(scope, session_cookie(self.site.app.name, scope))
        live = await (await self.sessions()).find(session_id)
        if live is None:
            return self.redirect(scope, "login")
        return logout_page(
            base=base_element(scope),
            title=self.site.options.title,
            user=live.user.name,
            once=logout_value(session_id),
        )

    async def log_out(self, scope: Scope, receive: Receive, origin: Origin) -> Response:
        fields = await self.fields(scope, receive, origin)
        name = session_cookie(self.site.app.name, scope)
        session_id = cookie_of(scope, name)
        if not is_same(fields.get("once", ""), logout_value(session_id)):
            raise Refusal(
                403, "old_form", "the form was of another session", "Try again."
            )
        await (await self.sessions()).end(session_id)
        answer = self.redirect(scope, "login")
        answer.headers.append("set-cookie", set_cookie(scope, origin, name, ""))
        return answer

    # --- both

    async def sessions(self) -> Sessions:
        app = self.site.app
        return Sessions(await self.site.store(), app.name, app.clock)

    async def fields(
        self, scope: Scope, receive: Receive, origin: Origin
    ) -> dict[str, str]:
        """Return the fields of a form that our own page has sent."""
        check_same_origin(scope, origin)
        kinds = header_values(scope, b"content-type")
        if [kind.partition(";")[0].strip().lower() for kind in kinds] != [FORM]:
            raise Refusal(415, "content_type", "this takes a plain form")
        body = await read_body(scope, receive, FORM_BYTES_MAX)
        try:
            found = parse_qs(
                body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX
            )
        except ValueError:
            raise Refusal(400, "invalid_form", "the form cannot be read") from None
        return {name: values[0] for name, values in found.items() if len(values) == 1}

    def redirect(self, scope: Scope, path: str) -> Response:
        return RedirectResponse(base_address(scope) + path, SEE_OTHER)


def path_in_mount(scope: Scope, path: str) -> str:
    """Return a path below the mount, without a slash at the start; empty if it is not one."""
    for prefix in (base_address(scope), root_path(scope) + "/"):
        if path.startswith(prefix):
            path = path[len(prefix) :]
            break
    is_inside = NEXT.fullmatch(path) is not None and ".." not in path
    return path if is_inside and not path.startswith(("login", "logout")) else ""


def logout_value(session_id: str) -> str:
    """Return the one-time value of the logout form: it ends with its session."""
    return hashlib.sha256(f"logout {session_id}".encode("utf-8", "replace")).hexdigest()


def is_same(sent: str, kept: str) -> bool:
    return bool(kept) and hmac.compare_digest(sent.encode(), kept.encode())
