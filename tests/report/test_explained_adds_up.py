"""`--explain`: every figure of a plan can be worked out, by a pocket calculator, from the lines that it prints."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from pytest_fanout.capacity.plan import plan_fleet, with_windows
from pytest_fanout.capacity.project import profile_of, project_sides, sides_of
from pytest_fanout.records import (
    Calibration,
    CalibrationPoint,
    Caps,
    ClassDemand,
    CliffInputs,
    Fleet,
    FleetPlan,
    Memory,
    Prices,
    Projection,
    Quota,
)
from pytest_fanout.report.explained import formulas
from pytest_fanout.report.explained_fleet import of_fleet

DEMAND = {
    "support": ClassDemand("support", 200_000, 2.4, 3.0, onboarding_dau=40_000),
    "research": ClassDemand("research", 30_000, 0.7, 2.5, iod=4.0),
}
PRICES = Prices(3.0, 0.3, 15.0, 4.0, 3.75)
CLIFFS = CliffInputs(fanout_ratio=2.75, tasks_per_user_ratio=6.0)
GPUS = Fleet(
    "", "fleet.toml", demand=DEMAND, prices=PRICES, cliffs=CLIFFS, gpus_reserved=200, gpus_burst=20, spare_replicas=1
)
MEASURED = Calibration(
    "ours", "a load test", "openai/gpt-oss-120b", "H200", 1,
    tuple(CalibrationPoint(c, 1_000 * c / (16.56 + 0.3 * c), 16.56 + 0.3 * c, 100.0 + 5 * c) for c in (1, 16, 64, 128)),
    30_000.0, 1_024, 1_024, 131_072,
)  # fmt: skip
FLEETS = {
    "a built-in profile": (GPUS, None),
    "replicas of four, memory binds": (
        dataclasses.replace(GPUS, profile="qwen3-235b-a22b-h200-dep4", memory=Memory(kv_pool_gb_per_gpu=9.0)), None,
    ),
    "prefixes are not kept": (dataclasses.replace(GPUS, memory=Memory(2.0, 36_864)), None),
    "a calibration": (GPUS, MEASURED),
    "a provider": (
        dataclasses.replace(
            GPUS, serves="provider", prices=dataclasses.replace(PRICES, usd_per_gpu_hour=None),
            quota=Quota(requests_per_minute=9_000, tokens_per_minute=70_000_000, tokens_per_day=10**11,
                        concurrent_requests=3_000),
        ), None,
    ),
    "no demand": (Fleet("", "fleet.toml", prices=PRICES), None),
}  # fmt: skip


def tasks(scale: int) -> dict[str, list[dict[str, int]]]:
    """Loops of 3 to 8 calls, with a cache, a tool and times."""

    def of(calls: int) -> dict[str, int]:
        given = scale * 1_000 * calls**2
        return {
            "fanout": calls,
            "input_tokens": given,
            "cached_input_tokens": 7 * given // 10,
            "output_tokens": 250 * calls,
            "cache_write_tokens": 120 * calls,
            "context_max": 1_700 * scale * calls,
            "context_token_ms": 1_100 * given,
            "model_ms": 1_100 * calls,
            "tool_ms": 900 * calls,
            "tool_ms[search]": 900 * calls,
            "duration_ms": 2_300 * calls,
        }

    return {f"t{calls}": [of(calls)] for calls in range(3, 9)}


def explained(where: Fleet, calibration: Calibration | None) -> tuple[list[str], list[Projection], FleetPlan | None]:
    profile = profile_of(where, (), calibration)
    sides = [sides_of(agent, tasks(1), tasks(scale), where) for agent, scale in (("support", 1), ("research", 2))]
    plain = [project_sides(each, where, profile, {}, calibration) for each in sides]
    caps = {"support": Caps(tokens=900_000, fanout=200), "research": Caps(tokens=None)}
    planned = plan_fleet(sides, where, profile, calibration, caps, windows=300)
    made = [with_windows(each, planned, profile, where) for each in plain]
    pairs = zip(made, sides, strict=True)
    lines = [line for one, side in pairs for line in formulas(one, side, where, profile, calibration)]
    if planned.fleet is not None:
        lines += of_fleet(planned.fleet, sides, where, profile, calibration)
    return lines, made, planned.fleet


def worked_out(numbers: str) -> float:
    """What a calculator says of an expression as it is printed."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", numbers).replace(" x ", " * ")
    assert re.fullmatch(r"(?:[\d.e+\-*/(), ]|max|min|ceil)+", text), text
    return float(eval(text, {"__builtins__": {}, "max": max, "min": min, "ceil": math.ceil}))


def value_of(text: str) -> float:
    return float(text.replace(",", ""))


def figures(told: Any, under: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record, with its place."""
    if isinstance(told, Mapping):
        for key, value in told.items():
            yield from figures(value, f"{under}.{key}")
    elif isinstance(told, Sequence) and not isinstance(told, str):
        for value in told:
            yield from figures(value, under)
    elif isinstance(told, int | float) and not isinstance(told, bool):
        yield under, float(told)


#: Not in a table of the plan: what the eval set is, shares of its luck, and the anchor beside the run.
NOT_SHOWN = re.compile(
    r"\.(tasks_shared|eval_share|cliffs\.survivable|base\..*|gpus_spread_base.*|gpus_base|gpus_for_p95_base|"
    r"gpus_growth\..*|growth\.ratio.*|.*_interval|tokens_per_s|kv_gb|ratio_calls|calls_per_task|tasks_in_flight_p99|"
    r"tasks_in_flight|wall_s_min|tokens_per_task)\Z|\.constraints\.text|\.load\.boundaries|\.load\.tasks"
)


@pytest.mark.parametrize("name", FLEETS)
def test_every_line_adds_up_and_every_figure_is_there(name: str) -> None:
    """Each formula gives the value behind it, its operands were told before, and no figure of the plan is missing."""
    where, calibration = FLEETS[name]
    lines, projections, plan = explained(where, calibration)

    known = [float(number) for number in (0, 1, 2, 3, 24, 30, 100, 0.9, 1_000, 3_600, 86_400, 1e6, 1e9)]
    profile = profile_of(where, (), calibration)
    for fit in (profile, profile.other):
        if fit is not None:
            known += [fit.prefill_tokens_per_s, fit.decode_tokens_per_s, fit.context_s, fit.gpus_per_replica]
    known += [value for _, value in figures(dataclasses.asdict(where))] + [0.85, 900_000]
    values = []
    formulas_seen = 0
    for line in lines:
        parts = line.split(" = ")
        if re.search(r" \([a-z\[].*\)\Z", parts[-1]) or not re.fullmatch(r"-?[\d,.e+\-]+", parts[-1]):
            number = re.match(r"-?[\d,]*\.?\d+(?:e[+-]\d+)?", parts[-1])
            if number:  # recorded, drawn or found: it is an operand from here on
                values.append(value_of(number.group()))
                known.append(values[-1])
            continue
        value = value_of(parts[-1])
        assert worked_out(parts[-2]) == pytest.approx(value, rel=2e-5, abs=1e-9), line
        for operand in re.findall(r"\d[\d,]*\.?\d*(?:e[+-]\d+)?", parts[-2]):
            told = value_of(operand.rstrip(","))
            assert any(math.isclose(told, each, rel_tol=2e-6) for each in known), (operand, line)
        known.append(value)
        values.append(value)
        formulas_seen += 1

    assert formulas_seen > 10
    shown = [("", each) for each in projections] + ([] if plan is None else [("fleet", plan)])
    missing = [
        (under + place, value)
        for under, record in shown
        for place, value in figures(dataclasses.asdict(record))
        if not NOT_SHOWN.search(place) and not any(math.isclose(value, each, rel_tol=1e-5, abs_tol=1e-9)
                                                   for each in (*values, *known))
    ]  # fmt: skip
    assert missing == []
