"""A test that names the requirement it proves names one that exists."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.house import ROOT, dotted

REQUIREMENTS = {f"M{number}" for number in range(1, 215)}
REQUIREMENTS |= {f"L{number}" for number in range(1, 48)}


def proofs(path: Path) -> Iterator[tuple[int, str]]:
    """Line and id of every `@pytest.mark.proves("M1", ...)` in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and dotted(node.func).endswith("mark.proves"):
            assert node.args, f"{path}:{node.lineno}: proves what?"
            for argument in node.args:
                if not isinstance(argument, ast.Starred):  # from a table
                    yield node.lineno, ast.literal_eval(argument)


def test_every_id_that_is_proven_exists() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: {identity!r}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, identity in proofs(path)
        if identity not in REQUIREMENTS
    ]
    assert not unknown, f"no such requirement: {unknown}"
