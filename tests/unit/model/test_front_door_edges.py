"""Rare paths of the rules for calls, results, policies and transactions."""

from typing import Annotated, Any

import pytest

from durio import Retry
from durio.model.argument_codec import ArgumentCodec
from durio.model.argument_errors import misfit, plain_words
from durio.model.errors import WrongTransaction
from durio.model.result_codec import ResultCodec
from durio.model.tx import KINDS, TxKind, without_django


def test_an_unknown_argument_of_a_stored_call() -> None:
    said = misfit("shop.send", "Object contains unknown field `y`")
    assert said == "send() has no parameter 'y'"


def test_a_payload_of_another_shape() -> None:
    said = misfit("shop.send", "Expected `object`, got `array`")
    assert said.startswith("send(): its arguments do not fit: ")


def test_an_unknown_field_inside_an_argument() -> None:
    said = plain_words("Object contains unknown field `y` - at `$.order`")
    assert said.startswith("it has no field 'y'")


def test_an_annotation_that_cannot_be_hashed() -> None:
    codec = ResultCodec("shop.send", Annotated[int, ["not", "hashable"]])
    assert codec.encode(1) == b"1"


def test_a_policy_keeps_its_fields() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        del Retry(3).retries
    policy = Retry(3)
    policy.__note__ = "a note"  # type: ignore[attr-defined]
    del policy.__note__  # type: ignore[attr-defined]


def test_a_parameter_without_an_annotation_beside_one_with_it() -> None:
    call: Any = lambda other, order: (other, order)  # noqa: E731
    call.__annotations__ = {"order": int}

    codec = ArgumentCodec(call, "shop.call", skip_first=False)
    assert b'"order":2' in codec.encode(("a", 2), {})


class BaseDatabaseWrapper:
    """As Django's connection looks to Durio."""

    connection: Any = None
    in_atomic_block = False
    autocommit = True

    def validate_thread_sharing(self) -> None: ...


def test_a_connection_of_django(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{BaseDatabaseWrapper.__module__}.{BaseDatabaseWrapper.__qualname__}"
    monkeypatch.setitem(KINDS, name, TxKind.DJANGO)
    tx = BaseDatabaseWrapper()
    with pytest.raises(WrongTransaction, match="no open transaction"):
        without_django(tx)
    tx.connection, tx.in_atomic_block = "the driver's", True
    assert without_django(tx) == "the driver's"
