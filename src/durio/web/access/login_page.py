"""The login and logout pages: plain HTML that works without JavaScript."""

import html
import re

from starlette.responses import HTMLResponse, Response

from durio.web.static_files import file_text

STYLES = re.compile(r'<link rel="stylesheet"[^>]*>')
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
<div class="lb"><div><h1>{title}</h1><p>{app}</p></div></div>
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
        styles="\n".join(STYLES.findall(file_text("index.html"))),
        notes="\n".join(notes),
        form=form,
    )
    return HTMLResponse(text, status)


def escaped(text: str) -> str:
    return html.escape(text, quote=True)
