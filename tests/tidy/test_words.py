"""One word per concept, and names that say what is inside."""

import ast
from pathlib import Path

from tests.tidy.house import SRC, every_module, functions, tree_of, words

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
# Adapters speak the language of the system they adapt.
SPEAK_ANOTHER_LANGUAGE = ("brokers/", "integrations/", "temporal/")


@every_module
def test_file_says_what_it_is_for(module: str) -> None:
    name = Path(module).stem
    assert name not in VAGUE, f"{module}: the name says nothing; name the thing"
    assert ast.get_docstring(tree_of(module)), f"{module}: open with one sentence"


def test_folders_have_names_too() -> None:
    folders = {path.name for path in SRC.rglob("*") if path.is_dir()}
    assert not folders & VAGUE, "a folder's name says what is inside"


@every_module
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
    """Attributes we name ourselves; those we only read may be another's words."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
