"""Shared statements in the SQL of each database."""

import re
from typing import Any

import pytest

from treadle.stores.postgres.dialect import POSTGRES
from treadle.stores.sql import deletion, dialect, reading
from treadle.stores.sql.dialect import Dialect
from treadle.stores.sqlite.dialect import SQLITE

BOTH = [pytest.param(SQLITE, id="sqlite"), pytest.param(POSTGRES, id="postgres")]
LINES = re.findall(r"^    ([A-Z_, ]+)   ", dialect.__doc__ or "", re.MULTILINE)
WORDS = {word for line in LINES for word in re.split(r"[, ]+", line) if word}


def statements() -> list[Any]:
    texts = [
        text for module in (reading, deletion) for text in vars(module).values() if isinstance(text, str)
    ]
    return [text for text in texts if re.match(r"(SELECT|WITH|UPDATE|DELETE)\b", text)]


@pytest.mark.parametrize("database", BOTH)
def test_a_dialect_has_a_text_for_each_documented_word(database: Dialect) -> None:
    assert database._words.keys() - {"?", "FALSE", "TRUE"} == WORDS


@pytest.mark.parametrize("database", BOTH)
def test_a_translated_statement_has_no_word_left_and_as_many_values(database: Dialect) -> None:
    assert len(statements()) > 20
    for text in [*statements(), database.referred_blobs, database.drop_blobs]:
        translated = database.statement(text)
        assert not WORDS & set(re.findall(r"[A-Z_]+", translated)), translated
        assert translated.count(database.statement("?")) == text.count("?") + text.count("IN_ARRAY"), (
            translated
        )


def test_a_word_inside_another_one_is_left_alone() -> None:
    assert SQLITE.statement("SELECT COST, COSTS, cost WHERE a = FALSE") == (
        "SELECT t.figures ->> '$.c', COSTS, cost WHERE a = 0"
    )
