"""The query language: what it reads, what it refuses and where, one canonical text."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durio.model.errors import InvalidQuery
from durio.model.job import DEAD, READY
from durio.model.query_keys import KEYS, Moments, QueryValue
from durio.model.query_language import (
    QUERY_CHARS_MAX,
    TERMS_MAX,
    VALUES_MAX,
    JobSearchText,
    QueryTerm,
    parse_query,
    term_of,
)


def terms(text: str) -> list[tuple[str, list[str], bool]]:
    """Key with path, values as text, and whether the term excludes."""
    return [
        (
            ".".join((term.key.name if term.key else "", *term.path)),
            [f"{v.operator}{v.text}{'*' if v.is_prefix else ''}" for v in term.values],
            term.is_negated,
        )
        for term in parse_query(text).terms
    ]


def meaning(text: str) -> object:
    (term,) = parse_query(text).terms
    return term.values[0].meaning


# --- what it reads


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("  \t ", []),
        ("state:dead", [("state", ["dead"], False)]),
        ("-state:done,dead", [("state", ["done", "dead"], True)]),
        ("send", [("", ["send"], False)]),
        ("-send_*", [("", ["send_*"], True)]),
        ('"timed out"', [("", ["timed out"], False)]),
        ('"a:b"*', [("", ["a:b*"], False)]),
        ("task:email:welcome", [("task", ["email:welcome"], False)]),
        ("task:send_*", [("task", ["send_*"], False)]),
        ("meta.tenant:*", [("meta.tenant", ["*"], False)]),
        ("args.user:42", [("args.user", ["42"], False)]),
        ("args.0.a-b:x", [("args.0.a-b", ["x"], False)]),
        ("args.__proto__:1", [("args.__proto__", ["1"], False)]),
        (r'error:"a \"b\" \\ c"', [("error", [r'a "b" \ c'], False)]),
        ('key:"a,b",c', [("key", ["a,b", "c"], False)]),
        ('key:"<x"', [("key", ["<x"], False)]),
        ("attempt:>2", [("attempt", [">2"], False)]),
        ("attempt:<=2,>=9", [("attempt", ["<=2", ">=9"], False)]),
        ("key:a\\b", [("key", ["a\\b"], False)]),
        ("key:-x", [("key", ["-x"], False)]),
        ('--x "-y"', [("", ["-x"], True), ("", ["-y"], False)]),
        (
            "state:dead  queue:mail",
            [("state", ["dead"], False), ("queue", ["mail"], False)],
        ),
    ],
)
def test_reads_terms(text: str, wanted: object) -> None:
    assert terms(text) == wanted


def test_terms_and_values_have_positions() -> None:
    first, second = parse_query(' -state:dead,done  "two words"').terms
    assert (first.start, first.end) == (1, 17)
    assert [(v.start, v.end) for v in first.values] == [(8, 12), (13, 17)]
    assert (second.start, second.end) == (19, 30)


def test_says_which_keys_are_used() -> None:
    query = parse_query("send worker:x")
    assert query.uses("version", "worker")
    assert not query.uses("state")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("state:dead", DEAD),
        ("state:ready", READY),
        ("id:0198C2F4-7A31", "0198c2f47a31"),
        ("plan:*", ""),
        ("error:TimeOut", "timeout"),
        ("error:*", ""),
        ("attempt:3", 3),
        ("priority:high", 7),
        ("priority:>=7", 7),
        ("age:>1h", 3600.0),
        ("run:<=250ms", 0.25),
        ("finished:<2d", 172800.0),
        ("key:x", "x"),
        ("args.a:42", 42),
        ("args.a:-1.5", -1.5),
        ("args.a:1e3", 1000.0),
        ("args.a:x", None),
        ("args.a:042x", None),
    ],
)
def test_values_have_a_meaning(text: str, wanted: object) -> None:
    found = meaning(text)
    assert found == wanted
    assert type(found) is type(wanted)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "first", "length"),
    [
        ("2026-11-16", "2026-11-16T00:00", 86_400_000),
        ("2026-11-16T10:30", "2026-11-16T10:30", 60_000),
        ("2026-11-16T10:30:15Z", "2026-11-16T10:30:15", 1_000),
        ("2026-11-16t10:30:15.25z", "2026-11-16T10:30:15.250", 10),
        ("2026-11-16T10:30:15.123+02:00", "2026-11-16T08:30:15.123", 1),
        ("2026-11-16T10:30-01:30", "2026-11-16T12:00", 60_000),
        ("0001-01-01T00:00+23:59", "0001-01-01T00:00", 60_000),
    ],
)
def test_a_time_stands_for_a_range(text: str, first: str, length: int) -> None:
    found = meaning(f"created:>{text}")
    assert isinstance(found, Moments)
    assert found.end - found.first == length
    if "23:59" not in text:
        assert found.first == ms(first)


# --- what it refuses

REFUSED = [
    ("stat:dead", 0, "there is no key 'stat'", "state"),
    ("queue:mail State:dead", 11, "there is no key 'State'", "state"),
    ("http://x", 0, "there is no key 'http'", None),
    ("constructor:1", 0, "there is no key 'constructor'", None),
    (":x", 0, "there is no key before ':'", None),
    ("-", 1, "nothing after '-'", None),
    ("- state:dead", 1, "nothing after '-'", None),
    ("args:1", 0, "args names no value", "args.user:42"),
    ("args.:1", 0, "args. names no value", "args.user:42"),
    ("meta.a..b:1", 0, "names no value", "meta.tenant:acme"),
    ("state.x:1", 0, "there is no key 'state.x'", "state"),
    ("state:", 6, "a value is missing", None),
    ("state:dead,", 11, "a value is missing", None),
    ("state:dead,,done", 11, "a value is missing", None),
    ("state:daed", 6, "there is no state 'daed'", "dead"),
    ("state:READY", 6, "there is no state 'READY'", "ready"),
    ("state:xyzzy", 6, "there is no state", None),
    ("state:>dead", 6, "state cannot be compared", 'state:">dead"'),
    ("state:d*", 6, "state cannot have '*'", None),
    ("task:a*b", 6, "'*' is not at the end", '"a*b"'),
    ("task:a**", 6, "'*' is not at the end", '"a**"'),
    ('task:a"b"', 6, "a value cannot have '\"' in it", None),
    ('task:"a"b', 8, "a value cannot have 'b' in it", None),
    ('"a"b', 3, "a word cannot have 'b' in it", None),
    ("a,b", 1, "a word cannot have ',' in it", None),
    ('a"b"', 1, "a word cannot have '\"' in it", None),
    (",", 0, "a value is missing", None),
    ('""', 0, "a word is empty", None),
    ('error:"a', 6, "a quote is not closed", None),
    (r'error:"a\n"', 8, "stands before neither", None),
    ('error:"a\\', 8, "stands before neither", None),
    ('error:" "', 6, "the part of an error is empty", None),
    ("id:xyz", 3, "'xyz' is not the beginning of an id", None),
    ("id:" + "0" * 33, 3, "is not the beginning of an id", None),
    ("attempt:two", 8, "'two' is not a whole number", None),
    ("attempt:>-1", 8, "'-1' is not a whole number", None),
    ("attempt:2*", 8, "attempt cannot have '*'", None),
    ("priority:10", 9, "there is no priority '10'", None),
    ("priority:hihg", 9, "there is no priority 'hihg'", "high"),
    ("age:1h", 4, "age needs a comparison", "age:>1h"),
    ("age:>soon", 4, "'soon' is not a duration", None),
    ("created:soon", 8, "'soon' is not a time", None),
    ("created:>2026-13-01", 8, "is not a time of the calendar", None),
    ("created:>2026-11-16T10:30.5", 8, "is not a time of the calendar", None),
    ("created:>2026-11-16T10:30+01:60", 8, "is not a time of the calendar", None),
    ("created:>2026-11-16T10:30+25:00", 8, "is not a time of the calendar", None),
    ("created:1h", 8, "created needs a comparison", "created:>1h"),
    ("args.user:>x", 10, "'x' is not a number", None),
    ("a\0b", 1, "has the character '\\x00'", None),
    ("a \ud800", 2, "has the character", None),
    (
        "x" * (QUERY_CHARS_MAX + 1),
        QUERY_CHARS_MAX,
        "the query has 1,001 characters",
        None,
    ),
    ("x " * TERMS_MAX + "x", 2 * TERMS_MAX, "more than 32 terms", None),
    ("key:" + "a," * VALUES_MAX + "a", 44, "key has more than 20 values", None),
]


@pytest.mark.parametrize(("text", "position", "what", "suggestion"), REFUSED)
def test_refuses_with_a_position(
    text: str, position: int, what: str, suggestion: str | None
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse_query(text)
    error = caught.value
    assert what in error.what
    assert f"(at character {position + 1})" in error.what
    assert error.values["position"] == position
    assert error.values["suggestion"] == suggestion
    assert error.values["expected"] in error.cure
    assert (f"Did you mean {suggestion!r}?" in error.cure) is (suggestion is not None)


def test_the_longest_queries_are_read() -> None:
    assert len(parse_query("x" * QUERY_CHARS_MAX).terms) == 1
    assert len(parse_query("x " * TERMS_MAX).terms) == TERMS_MAX
    (term,) = parse_query("key:" + ",".join("a" * VALUES_MAX)).terms
    assert len(term.values) == VALUES_MAX


def test_a_query_is_text() -> None:
    with pytest.raises(InvalidQuery, match="must be text, not int"):
        parse_query(5)  # type: ignore[arg-type]


@given(st.text(max_size=60))
@example("-:")
@example('key:"\\')
def test_any_text_is_read_or_refused_within_the_text(text: str) -> None:
    position = None
    try:
        query = parse_query(text)
    except InvalidQuery as error:
        position = error.values["position"]
    if position is None:
        assert parse_query(str(query)) == query
    else:
        assert 0 <= position <= len(text)


# --- one canonical text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  state:dead \t queue:mail ", "state:dead queue:mail"),
        ('key:"plain"', "key:plain"),
        ('key:"a b"*', 'key:"a b"*'),
        ('key:"*"', 'key:"*"'),
        ('meta.a:""*', "meta.a:*"),
        ('meta.a:""', 'meta.a:""'),
        (r'key:"a\"b\\"', r'key:"a\"b\\"'),
        ('"a:b"', '"a:b"'),
        ('-"-x"', '-"-x"'),
        ('"a:b"*', '"a:b"*'),
        ('"word"', "word"),
        ('attempt:>"2"', "attempt:>2"),
    ],
)
def test_prints_one_text(text: str, canonical: str) -> None:
    assert str(parse_query(text)) == canonical


def test_a_term_of_any_text() -> None:
    assert term_of("task", "send") == "task:send"
    assert term_of("key", 'a "b"') == r'key:"a \"b\""'


PLAIN = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
NAMES = st.text("abz09_-'\\", min_size=1, max_size=6)


OPERATORS = st.sampled_from(["", "<", ">", "<=", ">="])
# By kind: texts, and whether the kind is ordered or has prefixes.
TEXTS: dict[str, tuple[st.SearchStrategy[str], str]] = {
    "state": (st.sampled_from(["dead", "ready", "done"]), ""),
    "text": (PLAIN, "*"),
    "error": (PLAIN.filter(str.strip), "*"),
    "digits": (st.text("0af", min_size=1, max_size=32), "*"),
    "whole": (st.integers(0, 999).map(str), "<"),
    "priority": (st.sampled_from(["0", "9", "low"]), "<"),
    "duration": (st.sampled_from(["1h", "0", "1.5d"]), "<"),
    "moment": (st.dates().map(str), "<"),
    "json": (PLAIN, "*"),
}


@st.composite
def values(draw: st.DrawFn, kind: str) -> QueryValue:
    """A value as its key prints it, without its meaning."""
    texts, extra = TEXTS[kind]
    is_prefix = extra == "*" and draw(st.booleans())
    operator = draw(OPERATORS) if extra == "<" else ""
    if kind == "duration":
        operator = operator or ">"
    return QueryValue(draw(texts), operator, is_prefix)


@st.composite
def queries(draw: st.DrawFn) -> str:
    found: list[QueryTerm] = []
    for name in draw(st.lists(st.sampled_from([None, *KEYS]), max_size=5)):
        is_negated = draw(st.booleans())
        if name is None:
            word = QueryValue(draw(PLAIN.filter(bool)), "", draw(st.booleans()))
            found.append(QueryTerm(None, (word,), (), is_negated))
            continue
        key = KEYS[name]
        some = draw(st.lists(values(key.kind), min_size=1, max_size=3))
        path = draw(st.lists(NAMES, min_size=1, max_size=2)) if key.has_path else []
        found.append(QueryTerm(key, tuple(some), tuple(path), is_negated))
    return str(JobSearchText(tuple(found)))


@given(queries())
def test_every_query_goes_around(text: str) -> None:
    """Printed and read again it is the same query, and its text stays as it is."""
    query = parse_query(text)
    assert str(query) == text
    assert parse_query(str(query)) == query
