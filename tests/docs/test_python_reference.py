"""The Python reference is complete: each public name and method is there, with its text."""

import ast
import importlib
import re

import pytest

import durio.errors
from tests.docs.python_parts import BY_NAME, MAKE, PAGES, SHOWN, VALUES
from tests.docs.python_reference import (
    Shown,
    argument_names,
    constructor,
    definitions,
    entry,
    has_decorator,
    is_ours,
    meaning,
    own_parts,
    parts_of,
)
from tests.tidy.house import MODULES, ROOT, tree_of
from tests.tidy.test_public_api import PUBLIC, exports

REFERENCE = ROOT / "docs/reference"
PAGE_LINES_MAX = 950
# Bases whose members the page shows with the classes that users meet.
BASES = {"TaskCalls", "DeclaredTask"}
# A method's text begins with what the call does; these words begin a description.
NOT_A_VERB = {"A", "An", "The", "This", "What", "Whether", "When", "It", "For", "How"}
FUNCTIONS = [
    name
    for parts in PAGES.values()
    for name in " ".join(parts.values()).split()
    if name not in {*BY_NAME, *VALUES}
]

every_class = pytest.mark.parametrize("shown", SHOWN, ids=lambda s: s.kind.__name__)


def text_of(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [m for m in PUBLIC if m != "durio.errors"])
def test_every_public_name_is_on_a_page(module: str) -> None:
    headings = {
        heading
        for page in PAGES
        for heading in re.findall(r"^### (\w+)$", text_of(page), re.MULTILINE)
    }
    in_tables = {name for _, names in VALUES.values() for name in names}
    missing = [
        name
        for name in exports(PUBLIC[module])
        if name not in headings | in_tables | {*vars(durio.errors)}
    ]
    assert not missing, f"add them to tests/docs/python_parts.py: {missing}"


def test_every_class_with_a_public_path_is_on_a_page() -> None:
    """Also what users do not import: calls return it."""
    missing = [
        node.name
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef) and public_path(node) in PUBLIC
        if node.name not in {*BY_NAME, *BASES, *vars(durio.errors), "Control"}
    ]
    assert not missing, f"add them to tests/docs/python_parts.py: {missing}"


def public_path(owner: ast.ClassDef) -> str:
    for node in owner.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "__module__"
        ):
            return ast.literal_eval(node.value)
    return ""


@every_class
def test_every_public_member_is_shown(shown: Shown) -> None:
    parts = parts_of(shown.kind)
    made = constructor(shown.kind)
    known = {*parts.methods, *parts.fields, *parts.attributes}
    known |= set(argument_names(made)) if made else set()
    there = {
        name
        for base in shown.kind.__mro__
        if is_ours(base)
        for name in vars(base)
        if not name.startswith("_")
    }
    assert not there - known - shown.internal, "the page does not show these"
    assert not shown.internal - there - known, "internal, but gone"


@every_class
def test_what_is_shown_has_its_place(shown: Shown) -> None:
    """Each member is a heading, a line of a signature, or a row of a table."""
    text = "\n".join(entry(shown))
    parts = own_parts(shown)
    for name in [*parts.methods, *parts.fields, *parts.attributes]:
        if not name.startswith("__"):
            is_there = re.search(rf"(\.{name}\(|^\| `{name}` \|)", text, re.MULTILINE)
            assert is_there, f"{shown.kind.__name__}.{name}"


@every_class
def test_text_says_what_a_call_does(shown: Shown) -> None:
    assert ast.get_docstring(definitions()[shown.kind.__name__].node)
    wrong = [
        f"{name}: {text or 'no docstring'}"
        for name, (_, node) in parts_of(shown.kind).methods.items()
        if name not in shown.internal
        if not begins_well(text := ast.get_docstring(node) or "", node)
    ]
    assert not wrong, "begin with a verb: 'Return ...', 'Store ...'"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_text_says_what_a_function_does(name: str) -> None:
    node = definitions()[name].node
    assert begins_well(ast.get_docstring(node) or "", node), "begin with a verb"


def begins_well(text: str, node: ast.FunctionDef) -> bool:
    first = re.match(r"[A-Z][a-z]*\b", text)
    if has_decorator(node, "property"):
        return bool(first)
    return first is not None and first[0] not in NOT_A_VERB


@pytest.mark.parametrize("part", [part for part in MAKE if part != "python_options"])
def test_every_row_of_a_table_has_a_meaning(part: str) -> None:
    empty = [line for line in MAKE[part]() if re.search(r"\|\s*\|$", line)]
    assert not empty, f"say it in a comment beside the field or parameter: {empty}"


@pytest.mark.parametrize("page", PAGES)
def test_page_is_not_too_long(page: str) -> None:
    assert text_of(page).count("\n") <= PAGE_LINES_MAX, "make another page"


@pytest.mark.parametrize("page", PAGES)
def test_links_into_pages_lead_to_headings(page: str) -> None:
    for target, anchor in re.findall(
        r"\]\((python[\w-]*\.md)?#([\w-]+)\)", text_of(page)
    ):
        headings = re.findall(r"^#+ (.+)$", text_of(target or page), re.MULTILINE)
        anchors = {heading.lower().replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{target or page}#{anchor}"


# --- the rules themselves

PLANTED = """
class Parcel:
    weight: int
    # In
    # metres.
    height: float
    colour: str  # as text

    def send(self): "The sender."
    def open(self): "Open it."
    def close(self): pass
    @property
    def size(self): "The size."
"""


def test_bad_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = ast.parse(PLANTED).body[0]
    assert isinstance(owner, ast.ClassDef)
    calls = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
    good = {n.name for n in calls if begins_well(ast.get_docstring(n) or "", n)}
    assert good == {"open", "size"}
    house = importlib.import_module("tests.docs.python_reference")
    house.comments.cache_clear()
    monkeypatch.setattr(house, "text_of", lambda _module: PLANTED)
    fields = [node for node in owner.body if isinstance(node, ast.AnnAssign)]
    said = {ast.unparse(f.target): meaning("planted", f) for f in fields}
    house.comments.cache_clear()
    assert said == {"weight": "", "height": "In metres.", "colour": "as text"}
