"""What requests and answers of all areas have in common."""

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict

ItemT = TypeVar("ItemT")

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
CURSOR_CHARS_MAX = 2000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="items per page")]
Cursor = Annotated[
    str | None, Query(max_length=CURSOR_CHARS_MAX, description="of the page before")
]


class Answer(BaseModel):
    """What a route answers."""

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """What a route takes; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NoChoices(Body):
    """An action without choices: `{}`."""


class Items(Answer, Generic[ItemT]):
    """One page of a list."""

    items: list[ItemT]
    cursor: str | None = None  # of the next page; None: this is the last
    partial: bool = False  # the look ended early: ask again with the cursor
