"""Writes the Python reference from the source: signatures, docstrings and comments.

A docstring is the text of a class or method; an indented block in it becomes an example,
which runs with the page. A comment beside a parameter, a field or an attribute, or on the
lines above it, is its meaning. A method and its twin `..._sync` share one entry.
"""

import ast
import importlib
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from durio.model.options import OPTIONS, CallOptions
from tests.tidy.house import MODULES, Function, dotted, text_of, tree_of

COLUMNS = 84
# Names in annotations that users do not import -> what the page says.
PLAIN = {
    "AnyTask": "Task | str",
    "TaskReference": "Task",
    "OnDead": "Literal['raise', 'keep']",
    "os.PathLike[str]": "PathLike[str]",
    "R_co": "R",
    "D_co": "Deps",
    "Errors": "tuple[type[BaseException], ...]",
}
# What users write for a special method; `{}` is the object.
SPECIAL = {
    "__await__": "await {}",
    "__aenter__": "async with {}",
    "__enter__": "with {}",
    "__aiter__": "async for details in {}",
    "__iter__": "for details in {}",
}


class Source(NamedTuple):
    """A definition and the file that it stands in."""

    module: str
    node: Any


@dataclass(frozen=True)
class Shown:
    """How the page shows a class."""

    kind: type
    called: str  # the object in signatures, as `job` in `job.result()`
    how: str = ""  # a sentence that says where the object comes from
    is_made: bool = False  # users call the class
    like: type | None = None  # a class on the page that has the other members
    internal: frozenset[str] = frozenset()  # public by spelling, used by Durio only


# --- reading the source


@cache
def definitions() -> dict[str, Source]:
    """Classes and functions at the top of a module, by name; a class name is unique."""
    found: dict[str, Source] = {}
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = Source(module, node)
            elif isinstance(node, Function) and not has_decorator(node, "overload"):
                found.setdefault(node.name, Source(module, node))
    return found


@cache
def comments(module: str) -> dict[int, tuple[str, bool]]:
    """Comments by line, and whether a comment has the line for itself."""
    tokens = tokenize.generate_tokens(io.StringIO(text_of(module)).readline)
    return {
        token.start[0]: (
            token.string.lstrip("# ").strip(),
            not token.line[: token.start[1]].strip(),
        )
        for token in tokens
        if token.type == tokenize.COMMENT and not is_for_tools(token.string)
    }


def is_for_tools(comment: str) -> bool:
    return bool(re.match(r"#\s*(noqa|type:|pyright:|---)", comment))


def meaning(module: str, node: Any) -> str:
    """The comment on the line of a node, else the lines of comment above it."""
    known = comments(module)
    for line in (node.lineno, node.end_lineno):
        text, is_alone = known.get(line, ("", False))
        if text and not is_alone:
            return text
    above: list[str] = []
    line = node.lineno - 1
    while known.get(line, ("", False))[1]:
        above.insert(0, known[line][0])
        line -= 1
    return " ".join(above)


def said(module: str, node: Any) -> str:
    """A meaning as a sentence, for a table."""
    text = meaning(module, node)
    text = text if text.startswith("`") else text[:1].upper() + text[1:]
    return cell(text if text.endswith(".") or not text else f"{text}.")


class Parts(NamedTuple):
    """What a class has, in the order of the source, its bases first."""

    methods: dict[str, Source]
    fields: dict[str, Source]  # of a dataclass, a Struct or an enum
    attributes: dict[str, Source]  # set by the constructor


def parts_of(kind: type) -> Parts:
    parts = Parts({}, {}, {})
    ours = [base for base in reversed(kind.__mro__) if is_ours(base)]
    for base in ours:
        module, owner = definitions()[base.__name__]
        has_fields = hasattr(base, "__struct_fields__") or is_dataclass(owner)
        for node in owner.body:
            source = Source(module, node)
            if isinstance(node, Function):
                if node.name == "__init__":
                    parts.attributes.update(attributes_of(source))
                elif is_shown(node) and not has_decorator(node, "overload", "setter"):
                    parts.methods[node.name] = source
            elif isinstance(node, ast.AnnAssign) and has_fields:
                parts.fields[ast.unparse(node.target)] = source
            elif isinstance(node, ast.Assign) and hasattr(kind, "__members__"):
                parts.fields[ast.unparse(node.targets[0])] = source
    parts.fields.pop("__module__", None)
    parts.fields.pop("_", None)  # KW_ONLY of a dataclass
    return parts


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("durio") and kind.__name__ in definitions()


def is_dataclass(owner: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in owner.decorator_list)


def is_shown(node: Function) -> bool:
    return not node.name.startswith("_") or node.name in {*SPECIAL, "__call__"}


def has_decorator(node: Function, *names: str) -> bool:
    return any(dotted(each).rpartition(".")[2] in names for each in node.decorator_list)


def attributes_of(constructor: Source) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for node in constructor.node.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            name = target.attr if isinstance(target, ast.Attribute) else "_"
            if not name.startswith("_"):
                found[name] = Source(constructor.module, node)
    return found


# --- signatures


def signature(source: Source, called: str) -> str:
    """How users call a function: `async job.result(timeout: ... = None) -> R`."""
    node = source.node
    if has_decorator(node, "property"):
        return f"{called}: {plain(node.returns)}"
    is_async = isinstance(node, ast.AsyncFunctionDef)
    word, gives = "async " if is_async else "", ""
    returned = first_overload(source).returns or ast.Constant(value=None)
    if node.name != "__init__" and ast.unparse(returned) != "None":
        gives = f" -> {plain(returned)}"
    if has_decorator(node, "contextmanager"):
        word, gives = "with ", " as box"
    if has_decorator(node, "fixture"):
        return f"def test_something({called}: Box) -> None: ..."
    given = list(parameters(source))
    line = f"{word}{called}({', '.join(given)}){gives}"
    if len(line) <= COLUMNS:
        return line
    rows = "".join(f"    {each},\n" for each in given)
    return f"{word}{called}(\n{rows}){gives}"


def first_overload(source: Source) -> Function:
    """The first typed form of a call that has several; it names what is returned."""
    for owner in ast.walk(tree_of(source.module)):
        if isinstance(owner, ast.ClassDef) and source.node in owner.body:
            for node in owner.body:
                is_same = isinstance(node, Function) and node.name == source.node.name
                if is_same and has_decorator(node, "overload"):
                    return node
    return source.node


def parameters(source: Source) -> Iterator[str]:
    args = source.node.args
    plain_args = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain_args) - len(args.defaults)) + args.defaults
    for number, (arg, default) in enumerate(zip(plain_args, defaults, strict=True), 1):
        if arg.arg not in ("self", "cls"):
            yield parameter(source.module, arg, default)
        if number == len(args.posonlyargs) and arg.arg != "self":
            yield "/"
    if args.vararg:
        yield f"*{parameter(source.module, args.vararg, None)}"
    elif args.kwonlyargs:
        yield "*"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield parameter(source.module, arg, default)
    if args.kwarg:
        yield f"**{parameter(source.module, args.kwarg, None)}"


def parameter(module: str, arg: ast.arg, default: ast.expr | None) -> str:
    of = plain(arg.annotation)
    text = arg.arg if of in ("", "P.args", "P.kwargs", "Any") else f"{arg.arg}: {of}"
    return text if default is None else f"{text} = {default_of(module, default)}"


def default_of(module: str, default: ast.expr) -> str:
    """The default as text; of a constant, its value."""
    if isinstance(default, ast.Name):
        dotted_name = f"durio.{module.removesuffix('.py').replace('/', '.')}"
        value = getattr(importlib.import_module(dotted_name), default.id)
        return "no options" if value == CallOptions() else repr(value)
    if isinstance(default, ast.Call) and dotted(default.func) == "field":
        return "[]" if "list" in ast.unparse(default) else "{}"  # default_factory=list
    return ast.unparse(default)


def plain(annotation: ast.expr | None) -> str:
    """An annotation without quotes, and without names that only the source uses."""
    if annotation is None:
        return ""
    text = ast.unparse(annotation)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        text = annotation.value  # a quoted name of a class that is defined below
    for name, said in PLAIN.items():
        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", said, text)
    return text


# --- writing


def entry(shown: Shown) -> Iterator[str]:
    """The text about a class: what it is, how it is made, what it has."""
    source, parts = definitions()[shown.kind.__name__], own_parts(shown)
    made = constructor(shown.kind) if shown.is_made else None
    yield from (f"### {shown.kind.__name__}", "")
    if made:
        yield from ("```text", signature(made, shown.kind.__name__), "```", "")
    yield from document(source.node)
    if shown.how:
        yield from (shown.how, "")
    if made:
        yield from parameter_table(made)
    yield from attribute_table(parts, set(argument_names(made)) if made else set())
    yield from table("name" if is_enum(shown.kind) else "field", parts.fields)
    for name, (_, node) in parts.methods.items():
        is_twin = name.endswith("_sync") and name[:-5] in parts.methods
        if not is_twin and not has_decorator(node, "property"):
            yield from method(shown, parts, name)


def own_parts(shown: Shown) -> Parts:
    """What the page shows of a class: nothing that the class it is like has already."""
    hidden = set(shown.internal)
    if shown.like is not None:
        other = parts_of(shown.like)
        hidden |= {*other.methods, *other.fields} - {"__call__"}
    parts = parts_of(shown.kind)
    return Parts(
        *({k: v for k, v in each.items() if k not in hidden} for each in parts)
    )


def argument_names(source: Source) -> list[str]:
    args = source.node.args
    return [arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]]


def is_enum(kind: type) -> bool:
    return hasattr(kind, "__members__")


def constructor(kind: type) -> Source | None:
    module, owner = definitions()[kind.__name__]
    found = [n for n in owner.body if getattr(n, "name", "") == "__init__"]
    return Source(module, found[0]) if found else None


def method(shown: Shown, parts: Parts, name: str) -> Iterator[str]:
    source, called = parts.methods[name], shown.called
    if name in SPECIAL:
        written = SPECIAL[name].format(called)
        yield from (f"#### {written}", "")
        yield from document(source.node)
        return
    full = called if name == "__call__" else f"{called}.{name}"
    title = f"{full}(...)" if name == "__call__" else full
    if has_decorator(source.node, "classmethod", "staticmethod"):
        title = full = f"{shown.kind.__name__}.{name}"
    lines = (
        list(DECORATORS[full]()) if full in DECORATORS else [signature(source, full)]
    )
    if twin := parts.methods.get(f"{name}_sync"):
        lines.append(signature(twin, f"{full}_sync"))
    yield from (f"#### {title}", "", "```text", *lines, "```", "")
    yield from document(source.node)
    yield from parameter_table(source)


def task_decorator() -> Iterator[str]:
    """The two ways to write the decorator, with the keywords of the second."""
    keywords = definitions()["TaskKeywords"].node
    yield "@app.task"
    yield "@app.task("
    for node in keywords.body:
        if isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
            yield f"    {name}: {plain(node.annotation)} = ...,"
    yield ")"


DECORATORS = {"app.task": task_decorator}


def function(name: str) -> Iterator[str]:
    source = definitions()[name]
    yield from (f"### {name}", "", "```text", signature(source, name), "```", "")
    yield from document(source.node)
    yield from parameter_table(source)


def document(node: Any) -> Iterator[str]:
    """The docstring; an indented block becomes an example."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    for block in re.split(r"\n\n(?=\S)", text):
        if block:
            prose, is_example, code = block.partition("\n\n    ")
            yield from (*prose.splitlines(), "")
            if is_example:
                yield from ("```python", *textwrap.dedent(f"    {code}").splitlines())
                yield from ("```", "")


def parameter_table(source: Source) -> Iterator[str]:
    args = source.node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    meanings = {
        arg.arg: said(source.module, arg)
        for arg in every
        # The comment above a call that stands on one line is not about a parameter.
        if arg.lineno > source.node.lineno and arg.arg not in ("self", "cls")
    }
    rows = [f"| `{name}` | {text} |" for name, text in meanings.items()]
    if any(meanings.values()):
        yield from ("| parameter | meaning |", "|---|---|", *rows, "")


def attribute_table(parts: Parts, known: set[str]) -> Iterator[str]:
    """Attributes that the constructor sets, unless its table has them, and properties."""
    rows = [
        f"| `{name}` | {said(*source)} |"
        for name, source in parts.attributes.items()
        if name not in known
    ]
    for name, (_, node) in parts.methods.items():
        if has_decorator(node, "property"):
            text = " ".join((ast.get_docstring(node) or "").split())
            rows.append(f"| `{name}` | {cell(text)} |")
    if rows:
        yield from ("| attribute | meaning |", "|---|---|", *rows, "")


def table(what: str, found: dict[str, Source]) -> Iterator[str]:
    rows: list[str] = []
    for name, (module, node) in found.items():
        shown = f"`{ast.unparse(node.value)}`" if node.value else ""
        if isinstance(node, ast.AnnAssign):
            given = f" = {default_of(module, node.value)}" if node.value else ""
            shown = f"`{plain(node.annotation)}{given}`"
        rows.append(f"| `{name}` | {cell(shown)} | {said(module, node)} |")
    if rows:
        second = "type and default" if what == "field" else "value"
        yield from (f"| {what} | {second} | meaning |", "|---|---|---|", *rows, "")


def constants(module: str, names: list[str]) -> Iterator[str]:
    """Values that a module defines, with the comments about them."""
    yield from ("| value | meaning |", "|---|---|")
    for name in names:
        yield f"| `{name}` | {said(module, assigned(module, name))} |"
    yield ""


def assigned(module: str, name: str) -> ast.Assign:
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    raise LookupError(name)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- options


def options_table() -> Iterator[str]:
    """Every option of the table in model/options.py, and where it may be given."""
    node = definitions()["CallOptions"].node
    types = {
        ast.unparse(field.target): field.annotation.slice.elts[0]
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    assert list(types) == list(CallOptions.__struct_fields__)
    yield "| option | type | default | `App` | `@app.task` | `.options` | meaning |"
    yield "|---|---|---|---|---|---|---|"
    for name, option in OPTIONS.items():
        at = " | ".join(
            "yes" if place in option.places else "" for place in ("app", "task", "call")
        )
        of = cell(f"`{plain(types[name])}`")
        yield f"| `{name}` | {of} | {option.default} | {at} | {option.meaning} |"
    yield ""


def index_table(names: dict[str, tuple[str, str]]) -> Iterator[str]:
    """Each public name with the first sentence about it; `names` -> (text, page)."""
    yield "| name | what it is |"
    yield "|---|---|"
    for name, (text, link) in names.items():
        yield f"| [`{name}`]({link}) | {cell(first_sentence(text))} |"
    yield ""


def first_sentence(text: str) -> str:
    text = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", text)[0].rstrip(":")
