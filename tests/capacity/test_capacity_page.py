"""docs/capacity.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_fanout.capacity.profiles import BUILT_IN, calibrated
from pytest_fanout.store import fleet as fleet_file
from pytest_fanout.store.calibration import parse_calibration
from pytest_fanout.store.customers import parse_customers
from pytest_fanout.store.fleet import parse_fleet

PAGE = (Path(__file__).parents[2] / "docs" / "capacity.md").read_text(encoding="utf-8")


def test_example_file_is_read():
    """The fleet.toml on the page is valid and leaves no default."""
    block, _ = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)

    fleet = parse_fleet(block.encode(), "docs/capacity.md")

    assert fleet.defaulted == frozenset()
    assert None not in (fleet.prices.usd_per_gpu_hour, fleet.prices.usd_per_million_output_tokens)


def test_every_key_is_explained():
    """Each key of the schema has its row, and each row its key."""
    tables = fleet_file._validator().schema["properties"]
    names = ("fleet", "memory", "slo", "quota", "prices", "cliffs")
    expected = {f"{name}.{key}" for name in names for key in tables[name]["properties"]}
    expected |= {f"demand.CLASS.{key}" for key in tables["demand"]["additionalProperties"]["properties"]}

    assert set(re.findall(r"(?m)^\| `((?:fleet|memory|slo|quota|cliffs|prices|demand)\.[\w.]+)`", PAGE)) == expected


def test_every_profile_is_listed_with_its_rates():
    """The table of profiles is the list of built-in ones."""
    rows = re.findall(r"(?m)^\| `([\w.-]+)` \| ([\d,]+) \| ([\d,]+) \|", PAGE)

    expected = [(p.name, f"{p.prefill_tokens_per_s:,}", f"{p.decode_tokens_per_s:,}") for p in BUILT_IN]

    assert rows == expected


def test_the_calibration_on_the_page_is_read():
    """The example is a whole calibration that can be priced with."""
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    calibration = parse_calibration(block.encode(), "docs/capacity.md")

    assert calibrated(calibration).prefill_tokens_per_s == 21_000


def test_the_customers_on_the_page_are_read():
    """The example of a forecast is a whole file."""
    _, block = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)

    outlook = parse_customers(block.encode(), "docs/capacity.md")

    assert (outlook.customers[0].name, outlook.customers[0].classes) == ("Acme", {"support": 8.0, "research": 2.0})
    assert (outlook.dau_growth_per_week, outlook.tasks_per_user_growth_per_week) == (0.01, 0.005)
