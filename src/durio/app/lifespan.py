"""One life for a web app and its App: opened at start, closed at the end."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

Inner = Callable[[Any], AbstractAsyncContextManager[Any]]


class Opens(Protocol):
    """An App, as far as its life is concerned."""

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc: object) -> None: ...


class Lifespan:
    """`FastAPI(lifespan=app.lifespan)`, or `app.lifespan(inner=other)` around another."""

    def __init__(self, app: Opens, inner: Inner | None = None) -> None:
        self._app = app
        self._inner = inner

    def __call__(self, *asgi_app: Any, inner: Inner | None = None) -> Any:
        """Called by the framework with its app; by you with keywords only."""
        if not asgi_app:
            return Lifespan(self._app, inner)
        return self._live(asgi_app[0])

    @asynccontextmanager
    async def _live(self, asgi_app: Any) -> AsyncGenerator[Any, None]:
        async with self._app:
            if self._inner is None:
                yield
                return
            async with self._inner(asgi_app) as state:
                yield state
