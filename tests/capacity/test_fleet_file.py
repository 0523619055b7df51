"""fleet.toml: strict in, defaults named, one clear line for what cannot be used."""

from __future__ import annotations

import dataclasses
import re

import jsonschema
import pytest

from pytest_fanout.errors import ConfigError, FanoutError
from pytest_fanout.records import ClassDemand, CliffInputs, Fleet, Memory, Prices, Quota, Slo
from pytest_fanout.store import fleet as fleet_file
from pytest_fanout.store.fleet import EXAMPLE, parse_fleet

WHERE = "baselines/fleet.toml"
FULL = b"""
schema = 1
[fleet]
serves = "provider"
profile = "gpt-oss-20b-h200-tp1"
target_utilisation = 0.6
gpus_reserved = 24
gpus_burst = 8
spare_replicas = 1
cached_input_share_max = 0.8
cache_loss_points = 10
burst_price_ratio = 2
[memory]
kv_pool_gb_per_gpu = 55
kv_bytes_per_token = 36_864
sequences_per_replica_max = 256
[slo]
itl_ms_max = 40
ttft_ms_max = 1000
[quota]
requests_per_minute = 30_000
tokens_per_minute = 80_000_000
counts_cached_tokens = false
reserved_output_tokens_per_call = 4_096
[cliffs]
fanout_ratio = 2.75
tasks_per_user_ratio = 6
survive = "any"
[prices]
usd_per_million_new_input_tokens = 3
usd_per_million_cached_input_tokens = 0.3
usd_per_million_output_tokens = 15
usd_per_gpu_hour = 4
usd_per_million_cache_write_tokens = 3.75
[demand.support]
dau = 200_000
tasks_per_user_day = 2.4
peak_factor = 4
iod = 16
onboarding_dau = 40_000
hourly_shares = [1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,2,1,1,1,1,1,1]
[demand.research]
dau = 500
tasks_per_user_day = 1
"""


def parse(text):
    return parse_fleet(text.encode(), WHERE)


def test_every_key_is_read():
    """Each figure of the file stands in the record, and only what was missing is named as defaulted."""
    fleet = parse_fleet(FULL, WHERE)

    assert fleet == Fleet(
        digest=fleet.digest,
        source=WHERE,
        demand={
            "support": ClassDemand("support", 200_000, 2.4, 4.0, 16.0, 40_000, (1.0,) * 8 + (2.0,) * 10 + (1.0,) * 6),
            "research": ClassDemand("research", 500, 1.0, 3.0, 1.0),
        },
        profile="gpt-oss-20b-h200-tp1",
        target_utilisation=0.6,
        prices=Prices(3.0, 0.3, 15.0, 4.0, 3.75),
        defaulted=frozenset({"demand.research.peak_factor", "demand.research.iod"}),
        serves="provider",
        gpus_reserved=24,
        gpus_burst=8,
        spare_replicas=1,
        cached_input_share_max=0.8,
        cache_loss_points=10.0,
        burst_price_ratio=2.0,
        memory=Memory(55.0, 36_864.0, 256),
        slo=Slo(40.0, 1_000.0),
        quota=Quota(
            requests_per_minute=30_000,
            tokens_per_minute=80_000_000,
            counts_cached_tokens=False,
            reserved_output_tokens_per_call=4_096,
        ),
        cliffs=CliffInputs(2.75, 6.0, "any"),
    )


def test_no_file_means_defaults():
    """Without a file there is no demand, the default profile at 70 %, and both are named as defaults."""
    fleet = parse_fleet(None, WHERE)

    assert fleet.is_default
    assert (fleet.demand, fleet.prices) == ({}, Prices())
    assert (fleet.profile, fleet.target_utilisation) == ("gpt-oss-120b-h200-tp1", 0.70)
    assert fleet.defaulted == {
        *("fleet.serves", "fleet.profile", "fleet.target_utilisation", "fleet.gpus_burst", "fleet.spare_replicas"),
        *("fleet.cached_input_share_max", "fleet.cache_loss_points", "fleet.burst_price_ratio"),
        *("slo.itl_ms_max", "slo.ttft_ms_max"),
    }
    assert (fleet.gpus_reserved, fleet.quota, fleet.slo) == (None, None, Slo(50.0, 2_000.0))


def test_example_changes_nothing_until_it_is_edited():
    """The example that `init` writes is the defaults: same digest as no file."""
    example, nothing = parse(EXAMPLE), parse_fleet(None, WHERE)

    assert example.digest == nothing.digest
    assert dataclasses.replace(example, is_default=True) == nothing


def test_example_is_valid_when_its_marks_are_removed():
    """Every commented line of the example is a key that is read, with the default where there is one."""
    live = re.sub(r"(?m)^# (?=\[|\w+ = )", "", EXAMPLE)

    fleet = parse(live)

    assert fleet.demand == {"support": ClassDemand("support", 200_000, 2.4)}
    assert (fleet.profile, fleet.target_utilisation) == ("gpt-oss-120b-h200-tp1", 0.70)
    assert fleet.prices == Prices(3.0, 0.3, 15.0, 4.0, 3.75)
    assert fleet.memory == Memory(55.0, 36_864.0, 256)
    assert fleet.quota.concurrent_requests == 4_000
    assert fleet.cliffs == CliffInputs(2.75, 6.0, "all")
    assert fleet.defaulted == frozenset()


def test_digest_is_of_the_content():
    """Layout, comments, order and the spelling of a number leave the digest alone; a figure changes it."""
    one = parse("schema = 1\n[demand.a]\ndau = 1_000\ntasks_per_user_day = 2.0\n")
    same = parse("# same\r\nschema=1\r\n[demand]\r\na={tasks_per_user_day=2,dau=1000}\r\n")
    other = parse("schema = 1\n[demand.a]\ndau = 1_000\ntasks_per_user_day = 2.1\n")

    assert one.digest == same.digest
    assert one.digest != other.digest
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", one.digest)


def test_schema_is_a_valid_schema():
    """The shipped schema is itself valid JSON Schema 2020-12."""
    jsonschema.Draft202012Validator.check_schema(fleet_file._validator().schema)


def fails(data):
    with pytest.raises(FanoutError) as error:
        parse_fleet(data if isinstance(data, bytes) else data.encode(), WHERE)
    return str(error.value)


def test_unknown_key_names_key_and_file():
    """A mistyped key is refused with its table, what is known, and the name that was meant."""
    assert fails("schema = 1\n[demand.support]\ndau = 1\ntasks_per_user_day = 1\npeak_facter = 2\n") == (
        "baselines/fleet.toml: [demand.support]: unknown key peak_facter; known: dau, hourly_shares, iod, "
        "onboarding_dau, peak_factor, tasks_per_user_day\n"
        "  mend: rename 'peak_facter' to 'peak_factor'\n"
        "  see: docs/messages.md#unknown-key"
    )


def test_unknown_keys_at_the_top():
    """Tables that are not known are refused alike, all named."""
    assert fails("schema = 1\n[zzz]\n[qqq]\n") == (
        "baselines/fleet.toml: unknown keys qqq, zzz; known: cliffs, demand, fleet, memory, prices, quota, "
        "schema, slo\n"
        "  mend: remove 'qqq'\n"
        "  see: docs/messages.md#unknown-key"
    )


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("dau = 0\ntasks_per_user_day = 1", " dau", "is 0; it must be at least 1"),
        ("dau = -5\ntasks_per_user_day = 1", " dau", "is -5; it must be at least 1"),
        ("dau = 1.5\ntasks_per_user_day = 1", " dau", "is 1.5; it must be of type whole number"),
        ("dau = true\ntasks_per_user_day = 1", " dau", "is True; it must be of type whole number"),
        ('dau = "many"\ntasks_per_user_day = 1', " dau", "is 'many'; it must be of type whole number"),
        ("dau = 1\ntasks_per_user_day = 0", " tasks_per_user_day", "is 0; it must be at least 1e-06"),
        ("dau = 1\ntasks_per_user_day = nan", " tasks_per_user_day", "is nan; it must be a finite number"),
        ("dau = 1\ntasks_per_user_day = inf", " tasks_per_user_day", "is inf; it must be a finite number"),
        ("dau = 1\ntasks_per_user_day = 1\npeak_factor = 0.5", " peak_factor", "is 0.5; it must be at least 1"),
        ("dau = 1\ntasks_per_user_day = 1\niod = 0.5", " iod", "is 0.5; it must be at least 1"),
        ("dau = 1\ntasks_per_user_day = 2026-11-29", " tasks_per_user_day", "is a date; it must be of type number"),
    ],
)
def test_demand_that_is_no_demand(text, place, what):
    """Zero, negative, infinite or mistyped demand is refused with table and key."""
    assert fails(f"schema = 1\n[demand.support]\n{text}\n") == (
        f"baselines/fleet.toml: [demand.support]{place}: {what}\n  mend: mend{place}\n  see: docs/messages.md#bad-fleet"
    )


@pytest.mark.parametrize(
    ("text", "place", "what", "mend"),
    [
        ("", "", "schema is missing", "add schema = 1"),
        ("schema = 2", " schema", "is 2; it must be 1: this version reads no other", "mend schema"),
        ("schema = 1\nfleet = 3", " [fleet]", "is 3; it must be of type table", "mend fleet"),
        ("schema = 1\n[demand]\nsupport = 3", " [demand.support]", "is 3; it must be of type table", "mend support"),
        ("schema = 1\n[demand.support]\ndau = 1", " [demand.support]", "tasks_per_user_day is missing",
         "add tasks_per_user_day"),
        ("schema = 1\n[demand.support]", " [demand.support]", "dau, tasks_per_user_day are missing", "add dau"),
        ("schema = 1\n[fleet]\ntarget_utilisation = 0.9", " [fleet] target_utilisation",
         "is 0.9; it must be at most 0.85", "mend target_utilisation"),
        ("schema = 1\n[fleet]\ntarget_utilisation = 0", " [fleet] target_utilisation",
         "is 0; it must be at least 0.05", "mend target_utilisation"),
        ('schema = 1\n[fleet]\nprofile = ""', " [fleet] profile", "is ''; it must not be empty", "mend profile"),
        ("schema = 1\n[prices]\nusd_per_gpu_hour = -1", " [prices] usd_per_gpu_hour",
         "is -1; it must be at least 0", "mend usd_per_gpu_hour"),
        ("schema = 1\n[prices]\nusd_per_million_output_tokens = 15", " [prices]",
         "usd_per_million_cached_input_tokens, usd_per_million_new_input_tokens are missing",
         "add usd_per_million_cached_input_tokens"),
        ('schema = 1\n[fleet]\nmodel = "gpt-oss-120b"', " [fleet]", "gpu is missing", "add gpu"),
        ('schema = 1\n[fleet]\nserves = "gpu"', " [fleet] serves", "is 'gpu'; it must be one of gpus, provider",
         "mend serves"),
        ('schema = 1\n[fleet]\nmodel = "m"\ngpu = "g"\nprofile = "p"', " [fleet]",
         "profile and model both say what the fleet is", "remove profile"),
        ('schema = 1\n[fleet]\ncalibration = "c"\nprofile = "p"', " [fleet]",
         "profile and calibration both say what the fleet is", "remove profile"),
        ('schema = 1\n[fleet]\ncalibration = "c/../../c.json"', " [fleet] calibration",
         "is 'c/../../c.json'; it must be in a folder beside fleet.toml, where no anchor stands",
         'calibration = "calibrations/NAME.json"'),
        ('schema = 1\n[fleet]\ncalibration = "c.json"', " [fleet] calibration",
         "is 'c.json'; it must be in a folder beside fleet.toml, where no anchor stands",
         'calibration = "calibrations/NAME.json"'),
        ('schema = 1\n[fleet]\nserves = "provider"', " [fleet] serves",
         "a provider serves the model, and no quota says what it lets through", "add [quota]"),
        ("schema = 1\n[cliffs]\nfanout_ratio = 0.5", " [cliffs] fanout_ratio", "is 0.5; it must be at least 1",
         "mend fanout_ratio"),
        ("schema = 1\n[demand.a]\ndau = 1\ntasks_per_user_day = 1\nhourly_shares = [1, 2]", " [demand.a] hourly_shares",
         "is a list; it must have 24 entries", "mend hourly_shares"),
        ("schema = 1\n[demand.a]\ndau = 1\ntasks_per_user_day = 1\nhourly_shares = [" + "0," * 24 + "]",
         " [demand.a] hourly_shares", "has no hour with any demand", "give at least one hour a share above 0"),
        ("schema = 1\n[demand.a]\ndau = 1\ntasks_per_user_day = 1\nhourly_shares = [nan]", " [demand.a] hourly_shares",
         "is nan; it must be a finite number", "mend hourly_shares"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_used(text, place, what, mend):
    """Each value out of range, of another type or missing is one line that names file, table and key."""
    assert fails(text) == (
        f"baselines/fleet.toml{place and ':'}{place}: {what}\n  mend: {mend}\n  see: docs/messages.md#bad-fleet"
    )


@pytest.mark.parametrize(
    ("data", "at", "what", "mend", "slug"),
    [
        (b"schema = 1\n[demand", "",
         "is not valid TOML: Expected ']' at the end of a table declaration, at the end of the file",
         "mend the file", "bad-toml"),
        (b"schema = 1\nschema = 1\n", ":2", "is not valid TOML: Cannot overwrite a value", "mend the line", "bad-toml"),
        (b"schema = 1\n<<<<<<< HEAD\n", ":2", "holds the marks of an unresolved merge conflict",
         "resolve the conflict and commit the file", "conflict-marks"),
        (b"schema = 1\n# \xff\n", ":2", "is not UTF-8 text", "save the file as UTF-8", "bad-toml"),
        (b"schema = 1\nx = 0x" + b"f" * 5000, "", "holds a number of too many digits", "mend the file", "bad-toml"),
        (b"schema = 1\nx = " + b"9" * 5000, "", "holds a number of too many digits", "mend the file", "bad-toml"),
    ],
)  # fmt: skip
def test_files_that_are_no_toml(data, at, what, mend, slug):
    """Broken TOML, conflict marks and other encodings are refused with file and line."""
    assert fails(data) == f"baselines/fleet.toml{at}: {what}\n  mend: {mend}\n  see: docs/messages.md#{slug}"


def test_keys_that_cannot_be_printed():
    """A key with a line break cannot forge a second line of output."""
    assert fails('schema = 1\n[demand.a]\n"x\\ny" = 1\ndau = 1\ntasks_per_user_day = 1\n').splitlines()[0] == (
        "baselines/fleet.toml: [demand.a]: unknown key 'x\\ny'; known: dau, hourly_shares, iod, onboarding_dau, "
        "peak_factor, tasks_per_user_day"
    )


def test_demand_for_a_name_that_no_class_can_have():
    """A table that cannot name an agent class is refused by the rule for names."""
    assert fails("schema = 1\n[demand.Support]\ndau = 1\ntasks_per_user_day = 1\n").startswith(
        "baselines/fleet.toml: [demand.Support]: 'Support' cannot name an agent class"
    )


def test_truncated_anywhere_is_an_error_or_a_fleet():
    """Cut off at every third byte, the answer is a Fleet or one of our errors, never a traceback."""
    outcomes, messages = set(), []
    for end in range(0, len(FULL), 3):
        try:
            outcomes.add(type(parse_fleet(FULL[:end], WHERE)))
        except FanoutError as error:
            outcomes.add(type(error))
            messages.append(str(error))

    assert outcomes == {Fleet, ConfigError}
    assert all(message.startswith(WHERE) for message in messages)
