"""One lifespan for a web app and its App: opened at start, closed at the end.

    FastAPI(lifespan=app.lifespan)
    FastAPI(lifespan=app.lifespan(inner=other, embed_worker=True))

The App opens first and closes last. An embedded worker starts after the inner lifespan
and stops before it, so that jobs can use what the inner lifespan has made.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from durio.model.errors import UsageError

InnerLifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


class LifespanApp(Protocol):
    """The part of an App that a lifespan uses."""

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def worker(self) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """Return a worker that runs for the length of a block."""
        ...


class Lifespan:
    """A lifespan that opens the App when a web application starts, and closes it at the end.

    Use it as it is, `FastAPI(lifespan=app.lifespan)`, or call it with keywords first.
    """

    def __init__(
        self,
        app: LifespanApp,
        inner: InnerLifespan | None = None,
        worker: dict[str, Any] | None = None,
    ) -> None:
        self._app = app
        self._inner = inner
        self._worker = worker  # options of the worker; None: no worker in this process

    def __call__(
        self,
        *asgi_app: Any,
        inner: InnerLifespan
        | None = None,  # your own lifespan; it runs inside this one
        embed_worker: bool = False,  # run a worker in the web process
        **options: Any,
    ) -> Any:
        """Return a lifespan with these options, or open the App for a framework.

        The other options are those of `app.worker`; they need `embed_worker=True`. A
        framework calls the lifespan with its own application.
        """
        if asgi_app and inner is None and not embed_worker and not options:
            return self._opened(asgi_app[0])
        if options and not embed_worker:
            raise UsageError(
                f"app.lifespan: {', '.join(options)} is for an embedded worker",
                cure="Add embed_worker=True.",
            )
        if embed_worker:
            self._app.worker(**options)  # raises here, not when the server starts
        made = Lifespan(self._app, inner, options if embed_worker else None)
        return made(*asgi_app) if asgi_app else made

    @asynccontextmanager
    async def _opened(self, asgi_app: Any) -> AsyncGenerator[Any, None]:
        inner = nullcontext() if self._inner is None else self._inner(asgi_app)
        async with self._app, inner as state:
            if self._worker is None:
                yield state
                return
            async with self._app.worker(**self._worker):
                yield state
