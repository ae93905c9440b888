"""Time, randomness, threads, processes and signals come from the host alone.

Code that reads a clock or draws a random number by itself cannot run in a simulated
world, and its bugs cannot be replayed. Rooms ask `ports.clock` and `ports.executor`
instead; only host/ (the real machine) and cli/ (a real program) are free.
"""

import ast
from typing import TypeGuard

from tests.tidy.house import (
    MODULES,
    dotted,
    every_module,
    imported_names,
    room_of,
    tree_of,
)

FREE = {"host", "cli", "__main__"}

MACHINE = {"time", "sched", "random", "secrets", "threading", "_thread", "signal"}
MACHINE |= {"subprocess", "multiprocessing", "concurrent"}
MACHINE |= {"datetime.datetime.now", "datetime.datetime.utcnow"}
MACHINE |= {"datetime.datetime.today", "datetime.date.today"}
MACHINE |= {"uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "uuid.getnode"}
MACHINE |= {"os.urandom", "os.kill", "os.killpg", "os.fork", "os.times"}
MACHINE |= {"asyncio.sleep", "asyncio.to_thread"}

# path -> (what it may use, why it must)
ALLOWED: dict[str, tuple[set[str], str]] = {
    "telemetry/log.py": (
        {"datetime.datetime.now"},
        "a line says when it was written, as every record of logging does",
    ),
    "demo/record.py": (
        {"time"},
        "lines of several processes are ordered by one monotonic clock",
    ),
    "testing/clock.py": ({"random"}, "a seeded Random is chance that can be replayed"),
    "stores/sqlite/writer.py": ({"threading"}, "one connection writes, in one thread"),
    "stores/sqlite/reader.py": ({"threading"}, "reads do not wait for the writer"),
    "stores/sqlite/writer_handover.py": (
        {"threading"},
        "the writer waits while its turn is lent",
    ),
}


def machine_uses(module: str) -> set[str]:
    """What a file uses of the machine: `{"threading", "datetime.datetime.now"}`."""
    tree = tree_of(module)
    names = imported_names(tree)
    used = set(names.values())
    turns = {node.func for node in ast.walk(tree) if is_turn(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in turns:
            path = dotted(node)
            root, _, rest = path.partition(".")
            if root in names:
                used.add(f"{names[root]}.{rest}")
    return {taken for name in used for taken in MACHINE if within(name, taken)}


def is_turn(node: ast.AST) -> TypeGuard[ast.Call]:
    """`asyncio.sleep(0)` lets other tasks run: no time passes, not even virtual time."""
    return isinstance(node, ast.Call) and ast.unparse(node) == "asyncio.sleep(0)"


def within(name: str, taken: str) -> bool:
    return name == taken or name.startswith(f"{taken}.")


@every_module
def test_only_the_host_touches_the_machine(module: str) -> None:
    if room_of(module) in FREE:
        return
    allowed, _ = ALLOWED.get(module, (set[str](), ""))
    wrong = machine_uses(module) - allowed
    assert not wrong, f"{module} uses {sorted(wrong)}: ask a port, or say why not"


def test_allowed_list_has_reasons_and_is_still_needed() -> None:
    for module, (allowed, why) in ALLOWED.items():
        assert why.strip(), f"{module}: give a reason"
        assert module in MODULES, f"{module}: gone; take it off the list"
        unused = allowed - machine_uses(module)
        assert not unused, f"{module}: {sorted(unused)} is not needed any more"
