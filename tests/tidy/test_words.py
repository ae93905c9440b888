"""One word per concept, plain words, and names that say what is inside."""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.tidy.house import (
    MODULES,
    SRC,
    TEST_MODULES,
    Function,
    dotted,
    every_program,
    functions,
    tree_of,
    words,
)
from tests.tidy.test_public_api import PUBLIC, defined, exports, find

Trees = Mapping[str, ast.Module]

# File names that say nothing about what is inside.
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "base", "core"}
VAGUE |= {"manager", "stuff"}

# Words that already have another name here; the glossary has the whole table.
BANNED = {
    "ack": "finish",
    "activity": "step",
    "actor": "task",
    "available": "ready",
    "backend": "store",
    "beat": "schedule, tick or heartbeat",
    "blacklist": "denied",
    "canvas": "plan",
    "countdown": "delay",
    "dedupe": "idempotency key",
    "discarded": "dead or cancelled",
    "dlq": "dead",
    "eta": "run_at",
    "execution": "attempt",
    "flow": "plan or workflow",
    "master": "leader",
    "nack": "release",
    "pending": "ready, scheduled or blocked",
    "retryable": "scheduled",
    "revive": "retry",
    "slave": "worker",
    "visibility": "lease",
    "whitelist": "allowed",
}
# Metaphors that only this code base knew. They hold for names of modules, classes and
# public functions, and for parameters; a plural counts as its singular.
METAPHORS = {
    "aside": "side loop",
    "bell": "wakeup",
    "crew": "workers",
    "culprit": "cause",
    "desk": "context",
    "ear": "listener",
    "errand": "attempt",
    "guest": "caller",
    "guilty": "cause",
    "hand": "action",
    "haunt": "block",
    "innocent": "other",
    "kin": "descendant",
    "mould": "builder",
    "mouth": "publisher",
    "nobody": "none",
    "nursery": "pool",
    "office": "client",
    "paper": "metadata",
    "parcel": "row",
    "patrol": "rescan",
    "ring": "notify",
    "scribe": "session",
    "seal": "digest",
    "seat": "slot",
    "somebody": "caller",
    "stranger": "other",
    "suspect": "candidate",
    "told": "message",
    "voice": "publisher",
    "whoever": "caller",
}
# Literal uses: the shop of the demo sends parcels.
MEANT_LITERALLY = {("demo/run.py", "send_parcels"), ("demo/shop.py", "pack_parcel")}

# Words of the glossary that name one concept. A class or a module of exactly this name
# is the concept itself, and belongs in the files where the concept is defined.
HOMES: dict[str, tuple[str, ...]] = {
    "entry": ("model/log.py", "ports/logs.py"),
    "gate": ("model/gate.py", "ports/gates.py"),
    "history": ("model/history.py", "workflow/"),
    "outbox": ("client/outbox.py", "events/"),
    "plan": ("model/plan.py", "client/plan.py"),
    "record": ("ports/records.py", "demo/record.py"),  # the demo's: its ledger
    "run": ("workflow/", "demo/run.py"),  # the demo's: a verb
    "signature": ("client/plan.py",),
    "step": ("workflow/",),
    "subscription": ("events/",),
    "tick": ("model/tick.py", "maintenance/"),
    "ticket": ("model/gate.py", "ports/gates.py"),
    "topic": ("model/event.py", "events/"),
}

# Adapters use the words of the system that they adapt.
SPEAK_ANOTHER_LANGUAGE = ("brokers/", "integrations/", "temporal/")


@every_program
def test_file_says_what_it_is_for(module: str) -> None:
    name = Path(module).stem
    assert name not in VAGUE, f"{module}: the name says nothing; name the thing"
    assert ast.get_docstring(tree_of(module)), f"{module}: open with one sentence"


def test_folders_have_names_too() -> None:
    folders = {path.name for path in SRC.rglob("*") if path.is_dir()}
    assert not folders & VAGUE, "a folder's name says what is inside"


@every_program
def test_one_word_per_concept(module: str) -> None:
    if module.startswith(SPEAK_ANOTHER_LANGUAGE):
        return
    tree = tree_of(module)
    things = {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    things |= {f.name for f in functions(module)} | {Path(module).stem}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    names |= stored_attributes(tree)
    wrong = [
        f"{name!r}: we say {ours!r}, not {word!r}"
        for name in things | names
        for word, ours in BANNED.items()
        if word in words(name)
    ]
    assert not wrong, f"{module}: {'; '.join(sorted(wrong))}"


def stored_attributes(tree: ast.AST) -> set[str]:
    """Attributes that we name ourselves; others may be named by a library."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


# --- names that mean one thing


def repeated_classes(trees: Trees) -> list[str]:
    """Class names that are defined twice in the package."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in classes(tree):
            places[node.name].append(f"{module}:{node.lineno}")
    return [
        f"{name} is defined in {', '.join(where)}: give each a name of its own"
        for name, where in places.items()
        if len(where) > 1
    ]


def metaphors(trees: Trees) -> list[str]:
    """Names with a private metaphor in them."""
    return [
        f"{module}: {name!r}: we say {METAPHORS[word]!r}, not {word!r}"
        for module, tree in trees.items()
        for name in sorted({*named_here(module, tree)})
        for word in sorted({each.removesuffix("s") for each in words(name)})
        if word in METAPHORS and (module, name) not in MEANT_LITERALLY
    ]


def named_here(module: str, tree: ast.Module) -> Iterator[str]:
    yield from (part.removesuffix(".py") for part in module.split("/"))
    yield from (node.name for node in classes(tree))
    for node in ast.walk(tree):
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield from () if is_promise(node) else (node.name,)
        elif isinstance(node, ast.arg):
            yield node.arg


def is_promise(function: Function) -> bool:
    """A promise of the conformance suite, or an invariant of the simulator.

    Reports and mutants name them as they name test functions.
    """
    calls = (each for each in function.decorator_list if isinstance(each, ast.Call))
    added_by = {dotted(call.func) for call in calls}
    is_invariant = function.returns and (
        ast.unparse(function.returns) == "Iterator[Violation]"
    )
    return bool(added_by & {"chapter.promise", "chapter.table"} or is_invariant)


def homeless_concepts(trees: Trees) -> list[str]:
    """Classes and modules whose name belongs to a concept of another file."""
    return [
        f"{module}: {name!r} means something else: see the glossary"
        for module, tree in trees.items()
        for name in [Path(module).stem, *(node.name for node in classes(tree))]
        if not module.startswith(HOMES.get(name.lower(), ("",)))
    ]


def undocumented(public: Iterable[tuple[str, list[ast.stmt]]]) -> list[str]:
    """Public classes, functions and methods without a docstring."""
    return [
        f"{name}: users read its docstring: write one"
        for name, nodes in public
        if not any(map(has_docstring, nodes))
    ]


def public_api() -> Iterator[tuple[str, list[ast.stmt]]]:
    for public, module in PUBLIC.items():
        for name in exports(module):
            yield from documentable(*find(module, name), f"{public}.{name}")


def documentable(
    module: str, nodes: list[ast.stmt], name: str
) -> Iterator[tuple[str, list[ast.stmt]]]:
    """A public name with its definitions, then its public methods, also inherited."""
    if not isinstance(nodes[0], Function | ast.ClassDef):
        return  # a value: its class has the docstring
    yield name, nodes
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        methods: defaultdict[str, list[ast.stmt]] = defaultdict(list)
        for each in node.body:
            if isinstance(each, Function):
                methods[each.name].append(each)
        for method, found in methods.items():
            if not method.startswith("_"):
                yield f"{name}.{method}", found
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            where, above = find(module, dotted(plain))
            if above and above[0] is not node:
                yield from documentable(where, above, name)


def has_docstring(node: ast.stmt) -> bool:
    return isinstance(node, Function | ast.ClassDef) and bool(ast.get_docstring(node))


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


SRC_TREES = {module: tree_of(module) for module in MODULES}
TEST_TREES = {module: tree_of(module) for module in TEST_MODULES}
ALL_TREES = {**SRC_TREES, **TEST_TREES}


def test_class_names_are_unique_in_the_package() -> None:
    wrong = [*repeated_classes(SRC_TREES), *repeated_classes(TEST_TREES)]
    assert not wrong, "\n".join(wrong)


def test_names_are_plain_words() -> None:
    wrong = metaphors(ALL_TREES)
    assert not wrong, "\n".join(wrong)


def test_a_word_of_the_glossary_means_only_that() -> None:
    wrong = homeless_concepts(ALL_TREES)
    assert not wrong, "\n".join(wrong)


def test_every_public_name_has_a_docstring() -> None:
    wrong = undocumented(public_api())
    assert not wrong, "\n".join(wrong)


def test_no_word_is_banned_and_recommended() -> None:
    said = {word for ours in METAPHORS.values() for word in ours.split()}
    assert not said & {*METAPHORS, *BANNED, *HOMES}


def test_what_is_meant_literally_is_still_there() -> None:
    gone = {
        (module, name)
        for module, name in MEANT_LITERALLY
        if name not in {function.name for function in functions(module)}
    }
    assert not gone, "take it off the list"


# --- the checks find what is planted


def check_documented(trees: Trees) -> list[str]:
    return undocumented(
        found
        for module, tree in trees.items()
        for node in tree.body
        for found in documentable(module, [node], f"durio.{defined(node)[0]}")
    )


Check = Callable[[Trees], list[str]]
BROKEN: list[tuple[Check, dict[str, str], str]] = [
    (repeated_classes, {"a.py": "class X: ...", "b.py": "class X: ..."}, "X is"),
    (repeated_classes, {"a.py": "class X:\n class Y: ...\nclass Y: ..."}, "Y is"),
    (metaphors, {"stores/desk.py": ""}, "'desk'"),
    (metaphors, {"office/a.py": ""}, "'office'"),
    (metaphors, {"a.py": "class OpenEars: ..."}, "'OpenEars'"),
    (metaphors, {"a.py": "class X:\n async def ring_it(self): ..."}, "'ring_it'"),
    (metaphors, {"a.py": "def _hidden(*, told_before): ..."}, "'told_before'"),
    (metaphors, {"worker/shop.py": "def pack_parcel(): ..."}, "'pack_parcel'"),
    (homeless_concepts, {"model/job.py": "class Record: ..."}, "'Record'"),
    (homeless_concepts, {"worker/plan.py": ""}, "'plan'"),
    (homeless_concepts, {"client/x.py": "class Y:\n class Step: ..."}, "'Step'"),
    (check_documented, {"a.py": "class X: ..."}, "durio.X:"),
    (check_documented, {"a.py": "def f(): ..."}, "durio.f:"),
    (check_documented, {"a.py": "class X:\n 'X.'\n def f(self): ..."}, "durio.X.f:"),
]
WHOLE: list[tuple[Check, dict[str, str]]] = [
    (repeated_classes, {"a.py": "class X: ...", "b.py": "class Y: ..."}),
    (metaphors, {"host/handler.py": "def handle(string, search, kind): ..."}),
    (metaphors, {"demo/shop.py": "def pack_parcel(): ..."}),
    (metaphors, {"a.py": "def _ring(): told = seat"}),
    (metaphors, {"a.py": "@chapter.promise()\ndef nobody_waits(scene): ..."}),
    (metaphors, {"a.py": "def nobody_ends(case) -> Iterator[Violation]: ..."}),
    (
        homeless_concepts,
        {"ports/records.py": "class Record: ...", "workflow/run.py": ""},
    ),
    (homeless_concepts, {"model/job.py": "class StoredRecord: ...\ndef record(): ..."}),
    (check_documented, {"a.py": "class X:\n 'X.'\n def _f(self): ...\ny = X()"}),
]


def parsed(sources: Mapping[str, str]) -> dict[str, ast.Module]:
    return {module: ast.parse(text) for module, text in sources.items()}


@pytest.mark.parametrize(("check", "sources", "named"), BROKEN)
def test_broken_on_purpose_is_found(
    check: Check, sources: dict[str, str], named: str
) -> None:
    found = check(parsed(sources))
    assert len(found) == 1
    assert named in found[0]


@pytest.mark.parametrize(("check", "sources"), WHOLE)
def test_what_is_fine_is_left_alone(check: Check, sources: dict[str, str]) -> None:
    assert not check(parsed(sources))
