"""Bugs about where a job goes, and about which task takes a job."""

from tests.mutants.planting import Tests, one_patch

ROUTES = Tests("tests/unit/app/test_routes.py")

PREFIXES = Tests("tests/unit/app/test_prefixes.py")

ROUTING = "client/routing.py"

PLANTED = (
    one_patch(
        "last_route_decides",
        "Of the rules that give a route, the last one decides.",
        ROUTING,
        "for rule in self._rules:",
        "for rule in reversed(self._rules):",
        ROUTES,
    ),
    one_patch(
        "task_wins_over_its_route",
        "A task that declares its queue is not routed.",
        ROUTING,
        "    if isinstance(target, Handler):\n        return msgspec",
        "    if isinstance(target, Handler):\n"
        '        if target.queue != "default":\n'
        "            return target\n"
        "        return msgspec",
        ROUTES,
    ),
    one_patch(
        "route_wins_over_the_call",
        "The queue of a route replaces the one that the call gives.",
        "client/enqueue.py",
        "queue = defaults.queue if options.queue is UNSET else options.queue",
        'given = options.queue is UNSET or defaults.queue != "default"\n'
        "        queue = defaults.queue if given else options.queue",
        ROUTES,
    ),
    one_patch(
        "shortest_prefix_runs_the_job",
        "Of the prefixes that fit a name, the shortest one runs the job.",
        "model/names.py",
        "return max(fitting, key=len, default=None)",
        "return min(fitting, key=len, default=None)",
        PREFIXES,
    ),
    one_patch(
        "prefix_before_the_exact_name",
        "A task for many names takes the jobs of a task that has exactly their name.",
        "model/names.py",
        "    if task in names:\n        return task\n    fitting",
        "    fitting",
        Tests("tests/unit/model/test_names.py"),
    ),
)
