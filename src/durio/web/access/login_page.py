"""The login and logout pages: plain HTML that works without JavaScript."""

import html
import re

from starlette.responses import HTMLResponse, Response

from durio.web.static_files import file_text

# Of the built page: its styles and its icon.
LINKS = re.compile(r'<link rel="(?:stylesheet|icon)"[^>]*>')
HUSK = (
    "M13.0 0.5L15.2 3.5L18.4 1.7L19.0 5.4L22.8 5.2L21.7 8.8L25.2 10.2L22.7 13.0"
    "L25.2 15.8L21.7 17.2L22.8 20.8L19.0 20.6L18.4 24.3L15.2 22.5L13.0 25.5L10.8 22.5"
    "L7.6 24.3L7.0 20.6L3.2 20.8L4.3 17.2L0.8 15.8L3.3 13.0L0.8 10.2L4.3 8.8L3.2 5.2"
    "L7.0 5.4L7.6 1.7L10.8 3.5z"
)
SEED = "M9.2 6.8h3.6a6.2 6.2 0 0 1 0 12.4H9.2zm2.7 2.7v7h.9a3.5 3.5 0 0 0 0-7z"
MARK = (
    '<svg class="mark" viewBox="0 0 26 26" aria-hidden="true">'
    f'<path class="husk" d="{HUSK}"/><path class="seed" d="{SEED}"/></svg>'
)
PAGE = """<!doctype html>
<html lang="en" dir="ltr">
<head>
<meta charset="utf-8">
{base}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
{styles}
</head>
<body>
<main class="lone"><div class="login">
<div class="lb">{mark}<div><h1>{title}</h1><p>{app}</p></div></div>
{notes}
{form}
</div></main>
</body>
</html>
"""
LOGIN_FORM = """<form method="post" action="login">
<input type="hidden" name="once" value="{once}">
<input type="hidden" name="next" value="{next}">
<label class="f" for="user">User name
<input id="user" name="user" type="text" autocomplete="username" autocapitalize="none"
 spellcheck="false" maxlength="128" required autofocus value="{user}"></label>
<label class="f" for="password">Password
<input id="password" name="password" type="password" autocomplete="current-password"
 maxlength="1024" required></label>
<button class="btn pri wide" type="submit">Log in</button>
</form>"""
LOGOUT_FORM = """<form method="post" action="logout">
<input type="hidden" name="once" value="{once}">
<button class="btn pri wide" type="submit">Log out</button>
</form>
<p class="fine"><a href=".">Back</a></p>"""


def login_page(  # noqa: PLR0913 - the parts of one page, all keywords
    *,
    base: str,
    title: str,
    app: str,
    once: str,
    following: str = "",
    user: str = "",
    error: str = "",
    hint: str = "",
    status: int = 200,
) -> Response:
    """Return the form, with what was wrong with the last try."""
    form = LOGIN_FORM.format(
        once=escaped(once), next=escaped(following), user=escaped(user)
    )
    return page(base, title, f"Log in to {app}", form, error, hint, status=status)


def logout_page(*, base: str, title: str, user: str, once: str) -> Response:
    """Return a page with the button that ends the session."""
    form = LOGOUT_FORM.format(once=escaped(once))
    return page(base, title, f"You are {user}", form)


def page(
    base: str,
    title: str,
    app: str,
    form: str,
    error: str = "",
    hint: str = "",
    *,
    status: int = 200,
) -> Response:
    notes = [f'<p class="err" role="alert">{escaped(error)}</p>'] if error else []
    notes += [f'<p class="fine">{escaped(hint)}</p>'] if hint else []
    text = PAGE.format(
        base=base,
        title=escaped(title),
        app=escaped(app),
        mark=MARK,
        styles="\n".join(LINKS.findall(file_text("index.html"))),
        notes="\n".join(notes),
        form=form,
    )
    return HTMLResponse(text, status)


def escaped(text: str) -> str:
    return html.escape(text, quote=True)
