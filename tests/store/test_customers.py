"""Signed customers: the two files that say who comes, and what is refused."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Customer, Outlook
from pytest_fanout.store.customers import parse_customers

TOML = """schema = 1
[growth]
dau_per_week = 0.01
tasks_per_user_per_week = -0.02
[[customer]]
name = "Zeta"
live = 2027-01-31
dau = 40_000
tasks_per_user_day = 3.5
classes = { support = 8, research = 2 }
[[customer]]
name = "Acme"
live = "2026-12-14"
dau = 100
tasks_per_user_day = 1
"""
ZETA = Customer("Zeta", date(2027, 1, 31), 40_000, 3.5, {"support": 8.0, "research": 2.0})
ACME = Customer("Acme", date(2026, 12, 14), 100, 1.0)


def refused(data: bytes, where: str = "customers.toml") -> str:
    with pytest.raises(ConfigError) as caught:
        parse_customers(data, where)
    return str(caught.value)


def test_toml():
    """Customers in the order in which they go live, and growth in shares a week."""
    assert parse_customers(TOML.encode(), "customers.toml") == Outlook((ACME, ZETA), 0.01, -0.02)


def test_csv():
    """The same columns; a mix of classes is pairs, and growth comes from options."""
    text = (
        "name,live,dau,tasks_per_user_day,classes\n"
        "Zeta,2027-01-31,40000,3.5,support=8 research=2\n"
        "Acme,2026-12-14,100,1,\n"
    )

    assert parse_customers(text.encode("utf-8-sig"), "Signed.CSV") == Outlook((ACME, ZETA))


def test_what_a_refusal_says():
    """bad-customers: the customer, the value and the rule."""
    assert refused(TOML.replace("40_000", "0").encode()) == (
        "customers.toml: customer 1: has a dau of 0; it must be a whole number from 1 up\n"
        "  mend: daily active users\n  see: docs/messages.md#bad-customers"
    )


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("schema = 1", "", "has no schema = 1"),
        ("dau_per_week", "dau_a_week", "[growth]: has unknown 'dau_a_week'"),
        ("0.01", "2.0", "[growth] dau_per_week: is 2.0; it must be a share a week from -0.5 to 1"),
        ("0.01", "nan", "[growth] dau_per_week: is NaN; it must be a share"),
        ("3.5", "0", "customer 1: has tasks_per_user_day 0; it must be above 0"),
        ("3.5", "inf", "customer 1: has tasks_per_user_day Infinity; it must be above 0"),
        ("2027-01-31", '"soon"', "customer 1: has a live date 'soon'"),
        ("support = 8", "support = -8", "customer 1: has a share -8 of support"),
        ("support = 8, research = 2", "support = 0", "customer 1: has no class with a share above 0"),
        ('"Acme"', '"Zeta"', "has two customers 'Zeta'"),
        ("dau = 100\n", "", "customer 2: lacks dau"),
        ("dau = 100\n", "dau = true\n", "customer 2: has a dau of True"),
        ("[[customer]]", "[[customers]]", "has unknown 'customers'"),
    ],
)
def test_what_toml_is_refused(old: str, new: str, what: str):
    """Nothing is guessed, and the place is named."""
    assert what in refused(TOML.replace(old, new).encode())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name,live,dau\nA,2027-01-01,5\n", "c.csv:2: lacks tasks_per_user_day"),
        ("name,live,users\n", "c.csv: has unknown 'users'"),
        ("name,live,dau,tasks_per_user_day\nA,2027-01-01,5\n", "c.csv:2: has another number of cells"),
        ("name,live,dau,tasks_per_user_day\nA,2027-01-01,many,1\n", "c.csv:2: has a dau of 'many'"),
        ("name,live,dau,tasks_per_user_day,classes\nA,2027-01-01,5,1,support\n", "which are no pairs of class=share"),
        ('name\n"A', "is not CSV"),
        ("", "c.csv:1: names no columns"),
        ("name,live,dau,dau,tasks_per_user_day\nA,2027-01-01,5,9,1\n", "c.csv:1: names the column 'dau' twice"),
        ("name,live,dau,tasks_per_user_day\n\nA,2027-01-01,many,1\n", "c.csv:3: has a dau of 'many'"),
        (
            "name,live,dau,tasks_per_user_day,classes\nA,2027-01-01,5,1,support=1 support=2 research=1\n",
            "c.csv:2: has the class support twice",
        ),
        (
            "name,live,dau,tasks_per_user_day,classes\nA,2027-01-01,5,1,support=1e308 research=1e308\n",
            "c.csv:2: has a share 1e+308 of support; it must be from 0 to 1e9",
        ),
    ],
)
def test_what_csv_is_refused(text: str, what: str):
    """A line that is no customer is named by its number."""
    assert what in refused(text.encode(), "c.csv")


def test_csv_that_is_not_utf8():
    """Bytes of another encoding would make other names."""
    assert "c.csv: is not UTF-8 text" in refused(b"name\n\xff\n", "c.csv")
