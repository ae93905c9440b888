"""The dashboard: admin API, access and the page, as one ASGI application."""

from durio.web.identity import User as User
