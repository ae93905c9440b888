"""Ask a dashboard without a network: httpx speaks ASGI to it."""

from typing import Any

import httpx

from durio import App
from durio.web import User
from durio.web.application import DashboardApplication
from durio.web.options import DashboardOptions

HOST = "dash.example.com"
ADDRESS = "192.0.2.7"  # of the browser
OURS = {"Sec-Fetch-Site": "same-origin"}


def dashboard(
    app: App, user: User | None = None, **options: Any
) -> DashboardApplication:
    """A dashboard where everybody is this user."""
    if user is not None:
        options["auth"] = lambda _: user
    return DashboardApplication(app, DashboardOptions(**options))


def browser(
    asgi: Any,
    *,
    root: str = "",
    host: str = HOST,
    address: str = ADDRESS,
    **options: Any,
) -> httpx.AsyncClient:
    """A client whose requests look as those of the page itself."""
    transport = httpx.ASGITransport(
        asgi, root_path=root, client=(address, 4711), raise_app_exceptions=False
    )
    headers = {**OURS, **options.pop("headers", {})}
    return httpx.AsyncClient(
        transport=transport, base_url=f"http://{host}{root}", headers=headers, **options
    )
