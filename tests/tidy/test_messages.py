"""Plain words in everything that people read: messages, help texts, log texts."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.house import MODULES, Function, tree_of

WORDS = [
    "whoever",
    "somebody",
    "nobody",
    "hears",
    "told",
    "guilty",
    "convicted",
    "innocent",
    "shall",
]
PHRASES = ("at hand", "all the same", "so many", "is told")
ODD = re.compile(rf"(?i)\b(?:{'|'.join((*WORDS, *PHRASES))})\b")
# Code and quotations are not our words.
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")


def texts(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module that people may read, with its line.

    A docstring is read by users where it is the help text of a command.
    """
    documented = (ast.Module, ast.ClassDef, *Function.__args__)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and not (module.startswith("cli/") and isinstance(node, Function))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (p for p in node.values if isinstance(p, ast.Constant))
            yield node.lineno, " ".join(str(part.value) for part in parts)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.lineno, str(node.value)


def odd_words(text: str) -> list[str]:
    plain = re.sub(r"\s+", " ", QUOTED.sub("", text))
    return ODD.findall(plain)


@pytest.mark.parametrize("module", MODULES)
def test_messages_are_in_plain_words(module: str) -> None:
    wrong = [
        f"{module}:{line}: {word!r} in {text!r}"
        for line, text in texts(module, tree_of(module))
        for word in odd_words(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("word", [*WORDS, *PHRASES])
def test_the_list_finds_each_word(word: str) -> None:
    tree = ast.parse(f'raise Error(f"{{x}}: {word.title()} must\\n act")')
    (text,) = {text for _, text in texts("app/x.py", tree)} - {""}
    assert odd_words(text)
    assert not odd_words(f"`{word}` and '{word}' and mis{word}s")
