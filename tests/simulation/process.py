"""A worker or a producer as a simulated process: its App, machine and side loop."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, final

from durio.app.app import App
from durio.app.worker_builder import make_worker
from durio.host.signals import ProcessName
from durio.model.settings import settings_from
from durio.ports.executor import ThreadResult
from durio.testing.clock import wake
from durio.worker.worker import Worker
from tests.simulation.fake_machine import FakeMachine
from tests.simulation.network import SimulatedLink
from tests.simulation.world import Node

HOST = "simulated"


@final
class NodeSideLoop:
    """Runs heartbeat and watchdog on the second loop of a process."""

    def __init__(self, node: Node) -> None:
        self.loop = node.side_loop
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this coroutine function on the side loop until `stop`."""
        self.tasks.append(self.loop.create_task(work()))

    async def stop(self) -> None:
        """Cancel the tasks there, and wait for their end."""
        tasks, self.tasks = self.tasks, []
        here = asyncio.get_running_loop()
        for task in tasks:
            ended = here.create_future()
            task.add_done_callback(
                lambda _, ended=ended: here.call_soon_threadsafe(wake, ended)
            )
            self.loop.call_soon_threadsafe(task.cancel)
            await ended


@final
class NodeMachine(FakeMachine):
    """The simulated process, as its worker sees it; it can be ended."""

    def __init__(self, node: Node, ended: Callable[[Node, int], None]) -> None:
        super().__init__()
        self._node = node
        self._ended = ended

    def end(self, code: int) -> None:
        """End the process now."""
        super().end(code)
        self._ended(self._node, code)


@final
class NodeCall:
    """A call that has ended already when it is returned."""

    thread_id = 0

    def __init__(self, ended: ThreadResult) -> None:
        self.future: asyncio.Future[ThreadResult] = (
            asyncio.get_running_loop().create_future()
        )
        self.future.set_result(ended)

    def interrupt(self, error: type[BaseException]) -> bool:
        """Always False: the call has ended."""
        del error
        return False

    def abandon(self) -> None:
        """Does nothing: the call has ended."""


@final
class NodeExecutor:
    """Runs sync tasks inline, in no virtual time."""

    def start(self, function: Callable[[], Any]) -> NodeCall:
        """Run it now."""
        try:
            return NodeCall(ThreadResult(function(), None))
        except BaseException as error:
            return NodeCall(ThreadResult(None, error))

    def close(self) -> None:
        """Do nothing: there are no threads."""


def app_on(
    node: Node,
    link: SimulatedLink,
    *,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> App:
    """Return an App in this process: it uses the simulated connection and the node's clock.

    The settings are passed whole. Environment variables and files are not read: a world
    must be the same on every machine.
    """
    whole = settings_from(settings)
    app = App("sqlite:///:memory:", clock=node.clock, settings=whole, **options)
    app.state.stores[os.getpid()] = link
    return app


async def worker_on(
    node: Node, app: App, ends: Callable[[Node, int], None], **options: Any
) -> tuple[Worker, NodeMachine]:
    machine = NodeMachine(node, ends)
    worker = await make_worker(
        app,
        executor=NodeExecutor(),
        side_loop=NodeSideLoop(node),
        machine=machine,
        process=ProcessName(f"{HOST}-{node.name}", node.boot),
        **options,
    )
    return worker, machine
