"""Words of the query language on a command line: `durio jobs ls state:dead -task:send`."""

import re
from collections.abc import Sequence
from typing import Any

import click

from durio.model.errors import InvalidQuery
from durio.model.query_language import JobSearchText, parse_query

# `-state:done` looks like options to click; a space before it makes it a word.
EXCLUDING = re.compile(r"-[a-z]+(?:\.[^:\s]+)?:.*", re.DOTALL)
SHOWN_CHARS_MAX = 100  # of the query, around the mistake
QUERY_ARGUMENT = click.argument("words", metavar="[QUERY]...", nargs=-1)


class QueryCommand(click.Command):
    """A command whose arguments may be terms that begin with `-`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; terms with a minus are words, and no options."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        with_value = {
            name for each in options if not each.is_flag for name in each.opts
        }
        words: list[str] = []
        for place, arg in enumerate(args):
            if arg == "--":
                words += args[place:]
                break
            is_value = bool(words) and words[-1] in with_value
            is_term = not is_value and EXCLUDING.fullmatch(arg)
            words.append(f" {arg}" if is_term else arg)
        return super().parse_args(ctx, words)


def query_of(words: Sequence[str]) -> JobSearchText:
    """Parse words as one query; an error shows where the mistake is."""
    text = " ".join(word.strip() for word in words)
    try:
        return parse_query(text)
    except InvalidQuery as error:
        raise with_caret(error) from None


def are_query(words: Sequence[str]) -> bool:
    """Whether arguments that may be ids are a query: one of them is a term."""
    return any(":" in word or '"' in word for word in words)


def with_caret(error: InvalidQuery) -> InvalidQuery:
    """Return the error with the query and a caret below the mistake."""
    values: dict[str, Any] = error.values
    text, position = str(values["query"]), int(values["position"])
    start = max(0, position - SHOWN_CHARS_MAX // 2)
    shown = "".join(
        char if char.isprintable() else "?"
        for char in text[start : start + SHOWN_CHARS_MAX]
    )
    lines = [shown, f"{' ' * (position - start)}^", error.cure]
    return InvalidQuery(error.what, cure="\n".join(lines), **values)
