"""Apply the routes of an App to a call: they come between the task and the call's options.

Routing returns the task with other defaults, so options of the call still win, field by
field. A call that gives queue and priority asks no rule.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import msgspec

from durio.client.task_by_name import TaskTarget
from durio.model.argument_codec import ArgumentCodec
from durio.model.errors import InvalidRoute
from durio.model.names import did_you_mean
from durio.model.options import UNSET, CallOptions
from durio.model.plan import SignatureValue
from durio.model.queues import DEFAULT_QUEUE
from durio.model.routes import (
    GlobRoute,
    Route,
    Router,
    RouteRule,
    checked_rules,
    name_of_router,
)
from durio.ports.handler import Handler

Target = Handler | TaskTarget


class Routes:
    """The rules of one App, in order."""

    def __init__(
        self,
        namespace: str,
        given: Sequence[RouteRule],
        queue_names: Callable[[], set[str]],
    ) -> None:
        self._rules = checked_rules(namespace, given)
        self._namespace = namespace
        self._queue_names = queue_names
        self._known = {DEFAULT_QUEUE}  # queues that were found before

    def target(
        self,
        target: Target,
        options: CallOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        is_following: bool = False,
    ) -> Target:
        """Return the task with queue and priority of its route; raises InvalidRoute.

        With `is_following` the call has all arguments but the first, which is a result.
        """
        if options.queue is not UNSET and options.priority is not UNSET:
            return target
        task, arguments = target.task, dict[str, Any]()
        meta = {} if options.meta is UNSET else dict(options.meta or {})
        for rule in self._rules:
            if isinstance(rule, GlobRoute):
                route = rule.route if rule.matches(task) else None
            else:
                arguments = arguments or named_values(
                    target, args, kwargs, is_following=is_following
                )
                route = asked(rule, task, arguments, meta)
            if route is not None:
                if options.queue is UNSET:
                    self._check_queue(task, route.queue)
                return routed(target, route)
        return target

    def of_signature(
        self,
        target: Target,
        signature: SignatureValue,
        options: CallOptions | None = None,  # if not those of the signature
        *,
        is_following: bool = False,
    ) -> Target:
        """Return the task of a signature as `target` does; a chunk's first call decides."""
        options = signature.options if options is None else options
        if signature.rows is not None:
            return self.target(target, options, signature.rows[0], {})
        args, kwargs = signature.args, signature.kwargs
        return self.target(target, options, args, kwargs, is_following=is_following)

    def _check_queue(self, task: str, queue: str) -> None:
        """Refuse a queue that the App does not know: its name is probably misspelt.

        The queues of other Apps are not known here.
        """
        is_own = task.partition(".")[0] == self._namespace
        if queue is UNSET or queue in self._known or not is_own:
            return
        names = {DEFAULT_QUEUE, *self._queue_names()}
        if queue not in names:
            raise InvalidRoute(
                f"the route of {task} leads to queue {queue!r}, which is not declared",
                cure=f'Declare it: App(queues=[Queue("{queue}")]), or queues=TIERS for '
                f"critical, high, default, low and bulk.{did_you_mean(queue, names)}",
                task=task,
                queue=queue,
            )
        self._known.add(queue)


def routes_of(
    namespace: str, rules: Sequence[RouteRule], queue_names: Callable[[], set[str]]
) -> Routes | None:
    return Routes(namespace, rules, queue_names) if rules else None


def routed(target: Target, route: Route) -> Target:
    changes: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(route).items()
        if value is not UNSET
    }
    if isinstance(target, Handler):
        return msgspec.structs.replace(target, **changes)
    return target._replace(**changes)


def asked(
    router: Router, task: str, arguments: dict[str, Any], meta: dict[str, object]
) -> Route | None:
    """Return the route that a router gives; raises InvalidRoute for any failure of it."""
    name = name_of_router(router)
    try:
        route: object = router(task, arguments, meta)
    except Exception as error:
        raise InvalidRoute(
            f"router {name} failed for {task} with {type(error).__name__}: {error}",
            cure="Nothing was stored. Correct the router; read arguments that not every "
            'task has with arguments.get("name").',
            task=task,
        ) from error
    if route is None or isinstance(route, Route):
        return route
    if inspect.iscoroutine(route):
        route.close()
    raise InvalidRoute(
        f"router {name} returned {route!r:.80} for {task}",
        cure='Nothing was stored. Return Route("critical"), or None for the next rule.',
        task=task,
    )


def named_values(
    target: Target,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    is_following: bool,
) -> dict[str, Any]:
    """Return the arguments by parameter, typed as the task gets them, with defaults.

    Those of a task whose code is elsewhere are as given, and have no defaults.
    """
    codec = target.codec
    if not isinstance(codec, ArgumentCodec):
        return codec.by_name(args, kwargs, is_following=is_following)
    if is_following:
        codec.encode_following(args, kwargs)  # raises if they do not fit
        bound = codec.bindable.bind_partial(None, *args, **kwargs)
    else:
        args, kwargs = codec.decode(codec.encode(args, kwargs))
        bound = codec.bindable.bind(*args, **kwargs)
    bound.apply_defaults()
    values = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        is_first, is_following = is_following, False
        if parameter.kind is Parameter.VAR_KEYWORD:
            values |= values.pop(parameter.name, {})
        elif is_first and parameter.kind is Parameter.VAR_POSITIONAL:
            values[parameter.name] = values[parameter.name][1:]
        elif is_first:
            del values[parameter.name]
    return values
