"""The language for choosing jobs: `state:dead queue:mail -task:send_* error:"timed out"`.

A query is a list of terms, and a job must match all of them. A term is `key:value`, with
several values separated by commas, or a bare word; `-` in front excludes. `<`, `>`, `<=` and
`>=` compare, and `*` at the end of a value means any text that begins so. Keys are in
`query_keys.py`. Parsing gives terms with their positions; `str()` of the result is the one
canonical text of the query.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from durio.model.errors import InvalidQuery
from durio.model.names import close_name
from durio.model.query_keys import (
    KEYS,
    QueryKey,
    QueryValue,
    ValueProblem,
    parse_value,
    quoted,
)

QUERY_CHARS_MAX = 1_000
TERMS_MAX = 32
VALUES_MAX = 20
OPERATORS = ("<=", ">=", "<", ">")
ENDS_OF_TEXT = ',"'
ENDS_OF_KEY = ':,"'
ESCAPED = '"\\'


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One condition: a key with values, any of which may match, or a bare word."""

    key: QueryKey | None  # None: a bare word
    values: tuple[QueryValue, ...]
    path: tuple[str, ...] = ()  # of `args.` and `meta.`
    is_negated: bool = False
    start: int = field(default=0, compare=False)  # in the text, `-` included
    end: int = field(default=0, compare=False)

    def __str__(self) -> str:
        sign = "-" if self.is_negated else ""
        if self.key is None:
            return f"{sign}{self.values[0].text_of_word()}"
        name = ".".join((self.key.name, *self.path))
        return f"{sign}{name}:{','.join(str(value) for value in self.values)}"


@dataclass(frozen=True, slots=True)
class JobSearchText:
    """A parsed query; `str()` gives its canonical text, which parses to an equal query."""

    terms: tuple[QueryTerm, ...] = ()

    def __str__(self) -> str:
        return " ".join(str(term) for term in self.terms)

    def masked(self) -> str:
        """Return the text without values of arguments and meta, for the audit."""
        hidden = (QueryValue("..."),)
        return " ".join(
            str(replace(term, values=hidden) if term.path else term)
            for term in self.terms
        )

    def uses(self, *names: str) -> bool:
        """Whether any term has one of these keys."""
        return any(term.key and term.key.name in names for term in self.terms)


def parse_query(text: str) -> JobSearchText:
    """Parse a query; raises InvalidQuery with the position of the first mistake."""
    if not isinstance(text, str):
        raise InvalidQuery(
            f"a query must be text, not {type(text).__name__}",
            cure="Write it as in query='state:dead queue:mail'.",
        )
    return JobSearchText(tuple(QueryParser(text).terms()))


class QueryParser:
    """Reads the terms of one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def terms(self) -> Iterator[QueryTerm]:
        self._check_text()
        count = 0
        self._skip_spaces()
        while self.at < len(self.text):
            count += 1
            if count > TERMS_MAX:
                raise self.mistake(
                    f"the query has more than {TERMS_MAX} terms",
                    self.at,
                    "the end of the query",
                )
            yield self._term()
            self._skip_spaces()

    def mistake(
        self, what: str, position: int, expected: str, suggestion: str | None = None
    ) -> InvalidQuery:
        """Return the error for a position of the text."""
        meant = f" Did you mean {suggestion!r}?" if suggestion else ""
        return InvalidQuery(
            f"{what} (at character {position + 1})",
            cure=f"Expected {expected}.{meant}",
            query=self.text[: QUERY_CHARS_MAX + 1],
            position=position,
            expected=expected,
            suggestion=suggestion,
        )

    def _check_text(self) -> None:
        if len(self.text) > QUERY_CHARS_MAX:
            raise self.mistake(
                f"the query has {len(self.text):,} characters",
                QUERY_CHARS_MAX,
                f"at most {QUERY_CHARS_MAX:,} characters",
            )
        for position, char in enumerate(self.text):
            if char == "\0" or "\ud800" <= char <= "\udfff":
                raise self.mistake(
                    f"the query has the character {char!r}",
                    position,
                    "text that can be stored",
                )

    # --- one term

    def _term(self) -> QueryTerm:
        start = self.at
        is_negated = self._takes("-")
        begin = self.at
        if self._is_at_end():
            raise self.mistake(
                "there is nothing after '-'",
                begin,
                "a key or a word, such as -state:done",
            )
        name = "" if self._char() == '"' else self._until(ENDS_OF_KEY)
        if self._char() == ":":
            key, path = self._key(name, begin)
            self.at += 1
            values = tuple(self._values(key))
            return QueryTerm(key, values, path, is_negated, start, self.at)
        self.at = begin
        word = self._word(begin)
        return QueryTerm(None, (word,), (), is_negated, start, self.at)

    def _key(self, name: str, begin: int) -> tuple[QueryKey, tuple[str, ...]]:
        """Return the key and its path; raise for one that does not exist."""
        head, dot, rest = name.partition(".")
        key = KEYS.get(head)
        if key is None or (dot and not key.has_path):
            raise self._unknown_key(name, head, begin)
        if not key.has_path:
            return key, ()
        path = tuple(rest.split("."))
        if not all(path):
            raise self.mistake(
                f"{name} names no value",
                begin,
                f"a path, such as {key.example}",
                key.example,
            )
        return key, path

    def _unknown_key(self, name: str, head: str, begin: int) -> InvalidQuery:
        near = head.lower() if head.lower() in KEYS else close_name(head, KEYS)
        if near is None and name:
            meant = f'"{name}:..."'
            expected = f"one of the keys {', '.join(KEYS)}; or text in quotes, {meant}"
        else:
            expected = f"one of the keys {', '.join(KEYS)}"
        shown = (
            f"there is no key {name[:80]!r}" if name else "there is no key before ':'"
        )
        return self.mistake(shown, begin, expected, near)

    def _word(self, begin: int) -> QueryValue:
        value = self._text_value("a key or a word", "", begin)
        if not value.text and not value.is_prefix:
            raise self.mistake("a word is empty", begin, "a key or a word")
        if not self._is_at_end():
            expected = "a space; only the values of a key are separated by commas"
            raise self.mistake(
                f"a word cannot have {self._char()!r} in it", self.at, expected
            )
        return value

    # --- values

    def _values(self, key: QueryKey) -> Iterator[QueryValue]:
        count = 0
        while True:
            count += 1
            if count > VALUES_MAX:
                raise self.mistake(
                    f"{key.name} has more than {VALUES_MAX} values",
                    self.at,
                    f"at most {VALUES_MAX} values",
                )
            yield self._value(key)
            if not self._takes(","):
                break
        if not self._is_at_end():
            raise self.mistake(
                f"a value cannot have {self._char()!r} in it",
                self.at,
                'a space or a comma; write such text in quotes, with \\" for a quote',
            )

    def _value(self, key: QueryKey) -> QueryValue:
        begin = self.at
        operator = next((o for o in OPERATORS if self._takes(o)), "")
        value = self._text_value(f"a value, such as {key.example}", operator, begin)
        try:
            return parse_value(key, value)
        except ValueProblem as problem:
            raise self.mistake(
                problem.what, begin, problem.expected, problem.suggestion
            ) from None

    def _text_value(self, expected: str, operator: str, begin: int) -> QueryValue:
        """Read text or quoted text; a `*` after it means any text that begins so."""
        is_quoted = self._char() == '"'
        if is_quoted:
            text, is_prefix = self._quoted_text(), self._takes("*")
        else:
            start = self.at
            text = self._until(ENDS_OF_TEXT)
            star = text.find("*")
            if -1 < star < len(text) - 1:
                raise self.mistake(
                    "'*' is not at the end",
                    start + star,
                    "'*' only at the end of a value, or text in quotes",
                    f'"{text}"',
                )
            text, is_prefix = text.removesuffix("*"), star >= 0
            if not text and not is_prefix:
                raise self.mistake("a value is missing", self.at, expected)
        return QueryValue(text, operator, is_prefix, None, begin, self.at)

    def _quoted_text(self) -> str:
        begin, chars = self.at, list[str]()
        self.at += 1
        while (char := self._char()) != '"':
            if char == "\\":
                self.at += 1
                if self._char() not in ESCAPED or not self._char():
                    raise self.mistake(
                        "'\\' stands before neither '\"' nor '\\'",
                        self.at - 1,
                        "'\\\\' for a backslash",
                    )
                char = self._char()
            if not char:
                raise self.mistake("a quote is not closed", begin, "'\"' at the end")
            chars.append(char)
            self.at += 1
        self.at += 1
        return "".join(chars)

    # --- characters

    def _char(self) -> str:
        """Return the next character; at the end of the text nothing."""
        return self.text[self.at : self.at + 1]

    def _is_at_end(self) -> bool:
        char = self._char()
        return not char or char.isspace()

    def _takes(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _until(self, ends: str) -> str:
        """Read up to a space or one of these characters."""
        start = self.at
        while not self._is_at_end() and self._char() not in ends:
            self.at += 1
        return self.text[start : self.at]

    def _skip_spaces(self) -> None:
        while self._char().isspace():
            self.at += 1


def term_of(name: str, text: str) -> str:
    """Return the term `key:text` for any text, in quotes where it needs them."""
    return f"{name}:{quoted(text)}"
