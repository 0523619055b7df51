"""budget.toml: what is read, what is refused, and when it is looser."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Caps, Limit
from pytest_fanout.store.budget import DEFAULT_TEXT, parse_budget
from pytest_fanout.store.looser import looser, stricter
from pytest_fanout.store.schemas import fault
from pytest_fanout.store.toml import load_toml

TENTH = Fraction(1, 10)
SEE = "  see: docs/messages.md#"
EXAMPLE = b"""
schema = 1
[default.limits]
"fanout.p95" = { increase = "10%", at_least = 1 }
[default.caps]
fanout = 100
spawn_depth = "none"
[default.judge]
alpha = 0.01
drift = "12.5% in 30 days"
[measure]
volatile = ["$.request_id"]
strict_egress = true
[agents.research.limits]
"fanout.p95" = { increase = "25%", max = 25 }
"tool_calls[web.search].max" = { max = 3, evidence = "off" }
"""


def test_agent_entries_override_field_by_field() -> None:
    """research keeps at_least of the default limit, and every cap and rule that it does not name."""
    budget = parse_budget(EXAMPLE)

    assert budget.limits_for("research") == (
        Limit("fanout", "p95", Fraction(1, 4), 1, 25),
        Limit("tool_calls[web.search]", "max", None, 0, 3, evidence=False),
    )
    assert budget.limits_for("support") == (Limit("fanout", "p95", TENTH, 1),)
    assert budget.caps_for("research") == Caps(fanout=100, spawn_depth=None)
    assert budget.judge_for("research").alpha == Fraction(1, 100)
    assert (budget.judge_for("x").drift, budget.judge_for("x").drift_days) == (Fraction(1, 8), 30)
    assert budget.measure.volatile == ("$.request_id",)
    assert budget.measure.strict_egress


def test_no_file_is_the_default_file() -> None:
    """What init writes has the digest of having no file: adding it changes nothing."""
    absent, written = parse_budget(None), parse_budget(DEFAULT_TEXT.encode())

    assert absent.digest == written.digest
    assert (absent.is_default, written.is_default) == (True, False)
    assert absent.limits_for("any") == (Limit("fanout", "p95", TENTH, 1), Limit("tokens", "p95", TENTH, 500))
    assert absent.caps_for("any") == Caps()


def test_comments_and_line_endings_do_not_change_the_digest() -> None:
    """CRLF checkouts and comments are the same budget."""
    assert parse_budget(EXAMPLE.replace(b"\n", b"\r\n") + b"# a comment\n").digest == parse_budget(EXAMPLE).digest


@pytest.mark.parametrize("text", [DEFAULT_TEXT.encode(), EXAMPLE])
def test_the_shipped_schema_accepts_what_is_read(text: bytes) -> None:
    """Editors that use budget.schema.json agree with the reader."""
    document: dict[str, Any] = load_toml(text, "budget.toml")
    document.get("default", {}).get("judge", {}).pop("alpha", None)  # kept as an exact decimal, which no JSON has

    assert fault(document, "budget") is None


def limits(line: str) -> str:
    return f"schema = 1\n[default.limits]\n{line}\n"


KNOWN_METRICS = (
    "tokens, fanout, attempts, tool_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, "
    "reasoning_tokens, context_max, context_token_ms, duration_ms, model_ms, tool_ms, peak_concurrency, rounds, "
    "spawn_depth, tool_calls[NAME], tool_ms[NAME], capped.share, failed.share"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schema = 1\nlimits = 3\n",
            "b.toml: unknown key limits; known: agents, default, measure, schema\n"
            f"  mend: remove or rename 'limits'\n{SEE}unknown-key",
        ),
        (
            "schema = 1\n[agents.research.caps]\nfanouts = 3\ncalls = 1\n",
            "b.toml: [agents.research.caps]: unknown keys calls, fanouts; known: attempts, fanout, identical_errors, "
            "parallel_calls, spawn_depth, tokens, tool_calls, wall_seconds\n"
            f"  mend: remove or rename 'calls'\n{SEE}unknown-key",
        ),
        (
            "[default]\n",
            f"b.toml: schema must be 1, the version that this release reads\n  mend: schema = 1\n{SEE}bad-budget",
        ),
        (
            limits('"calls.p95" = { max = 3 }'),
            f"b.toml: default.limits.\"calls.p95\" 'calls' is not a metric; known: {KNOWN_METRICS}\n"
            f"  mend: rename or remove it\n{SEE}bad-budget",
        ),
        (
            limits('"fanout.p97" = { max = 3 }'),
            "b.toml: default.limits.\"fanout.p97\" 'p97' is not a statistic; known: mean, p50, p90, p95, p99, p99.9, "
            f"max\n  mend: rename or remove it\n{SEE}bad-budget",
        ),
        (
            limits('"fanout" = { max = 3 }'),
            'b.toml: default.limits."fanout" is not of the form <metric>.<statistic>\n'
            f'  mend: write it like "fanout.p95"\n{SEE}bad-budget',
        ),
        (
            limits('"capacity.cliffs" = { max = 3 }'),
            'b.toml: [default.limits."capacity.cliffs"]: unknown key max; known: min\n'
            f"  mend: remove or rename 'max'\n{SEE}unknown-key",
        ),
        (
            limits('"capacity.cliffs" = {}'),
            'b.toml: default.limits."capacity.cliffs" limits nothing: it needs min, the cliffs to survive at once\n'
            f"  mend: {{ min = 1 }}\n{SEE}bad-budget",
        ),
        (
            limits('"capped.p95" = { max = 3 }'),
            'b.toml: default.limits."capped.p95" capped has the statistic share only\n'
            f'  mend: "capped.share"\n{SEE}bad-budget',
        ),
        (
            limits('"fanout.p95" = { at_least = 3 }'),
            'b.toml: default.limits."fanout.p95" limits nothing: it needs increase or max\n'
            f'  mend: increase = "10%"\n{SEE}bad-budget',
        ),
        (
            limits('"fanout.p95" = { increase = 0.1 }'),
            'b.toml: default.limits."fanout.p95".increase must be a percentage in quotes\n'
            f'  mend: write it like "10%"\n{SEE}bad-budget',
        ),
        (
            limits('"fanout.p95" = { max = 1.5 }'),
            'b.toml: default.limits."fanout.p95".max must be a whole number, at least 0\n'
            f"  mend: write a whole number without quotes\n{SEE}bad-budget",
        ),
        (
            "schema = 1\n[default.caps]\nfanout = true\n",
            "b.toml: default.caps.fanout must be a whole number, at least 1\n"
            f"  mend: write a whole number without quotes\n{SEE}bad-budget",
        ),
        (
            'schema = 1\n[default.judge]\ndrift = "25%"\n',
            "b.toml: default.judge.drift must read like 25% in 90 days\n"
            f'  mend: drift = "25% in 90 days"\n{SEE}bad-budget',
        ),
        (
            'schema = 1\n[measure]\nvolatile = "x"\n',
            f"b.toml: measure.volatile must be a list of texts\n  mend: volatile = []\n{SEE}bad-budget",
        ),
        (
            "schema = 1\n[agents.Research.caps]\nfanout = 1\n",
            "b.toml: [agents.Research]: 'Research' cannot name an agent class: lower-case letters, digits, '.', '_' "
            "and '-', at most 64 characters, none of approvals, budget, default, fleet, and not ending in .sites\n"
            f"  mend: rename the agent class\n{SEE}bad-agent-name",
        ),
        (
            "schema = 1\n[default.judge]\nalpha = 1e-999999999\n",
            f"b.toml: holds a number of too many digits\n  mend: mend the file\n{SEE}bad-toml",
        ),
        (
            f"schema = 1\n[default.caps]\nfanout = {'9' * 5000}\n",
            f"b.toml: holds a number of too many digits\n  mend: mend the file\n{SEE}bad-toml",
        ),
        (
            f"schema = 1\n[default.caps]\nfanout = 0x{'f' * 5000}\n",
            f"b.toml: holds a number of too many digits\n  mend: mend the file\n{SEE}bad-toml",
        ),
        (
            "schema = 1\nschema = 1\n",
            f"b.toml:2: is not valid TOML: Cannot overwrite a value\n  mend: mend the line\n{SEE}bad-toml",
        ),
        (
            "schema = 1\n<<<<<<< HEAD\n",
            "b.toml:2: holds the marks of an unresolved merge conflict\n"
            f"  mend: resolve the conflict and commit the file\n{SEE}conflict-marks",
        ),
    ],
)
def test_refused_budgets_name_file_key_and_mend(text: str, message: str) -> None:
    """Nothing that cannot be acted on is skipped."""
    with pytest.raises(ConfigError) as caught:
        parse_budget(text.encode(), "b.toml")

    assert str(caught.value) == message


def test_a_budget_that_is_not_text_is_refused() -> None:
    """The line of the first byte that is not UTF-8 is named."""
    with pytest.raises(ConfigError) as caught:
        parse_budget(b"schema = 1\n\xff", "b.toml")

    assert str(caught.value) == f"b.toml:2: is not UTF-8 text\n  mend: save the file as UTF-8\n{SEE}bad-toml"


BASE = EXAMPLE
LOOSENINGS = [
    ('increase = "10%"', 'increase = "11%"', ["default.limits.fanout.p95.increase"]),
    (
        "at_least = 1 }",
        "at_least = 2 }",
        ["agents.research.limits.fanout.p95.at_least", "default.limits.fanout.p95.at_least"],
    ),
    (", max = 25 }", ", max = 26 }", ["agents.research.limits.fanout.p95.max"]),
    (", max = 25 }", " }", ["agents.research.limits.fanout.p95.max"]),
    ('"fanout.p95" = { increase = "25%", max = 25 }', '"fanout.p95" = "none"', ["agents.research.limits.fanout.p95"]),
    ('evidence = "off"', 'evidence = "on"', ["agents.research.limits.tool_calls[web.search].max.evidence"]),
    ("fanout = 100", "fanout = 101", ["agents.research.caps.fanout", "default.caps.fanout"]),
    ("fanout = 100", 'fanout = "none"', ["agents.research.caps.fanout", "default.caps.fanout"]),
    ("alpha = 0.01", "alpha = 0.009", ["agents.research.judge.alpha", "default.judge.alpha"]),
    ("12.5% in", "13% in", ["agents.research.judge.drift", "default.judge.drift"]),
    ("in 30 days", "in 29 days", ["agents.research.judge.drift_days", "default.judge.drift_days"]),
    ("alpha", 'inconclusive = "warn"\nalpha', ["agents.research.judge.inconclusive", "default.judge.inconclusive"]),
    ('["$.request_id"]', '["$.request_id", "$.x"]', ["measure.volatile"]),
    ("strict_egress = true", "", ["measure.strict_egress"]),
    ("strict_egress = true", "strict_egress = true\nseal_keys = false", ["measure.seal_keys"]),
    ("strict_egress = true", 'strict_egress = true\nignore = ["otel"]', ["measure.ignore"]),
    ("strict_egress = true", 'strict_egress = true\npassthrough = ["db"]', ["measure.passthrough"]),
    ("strict_egress = true", 'strict_egress = true\nlive_inputs = ["flags"]', ["measure.live_inputs"]),
]


@pytest.mark.parametrize(("old", "new", "names"), LOOSENINGS)
def test_every_loosening_is_named_and_undone_by_the_stricter_of_both(old: str, new: str, names: list[str]) -> None:
    """Looser one way is stricter the other way round, and the stricter of both is never looser than either."""
    text = EXAMPLE.decode()
    assert old in text
    base, head = parse_budget(EXAMPLE), parse_budget(text.replace(old, new).encode())

    assert sorted(change.name for change in looser(base, head)) == names
    assert looser(head, base) == ()
    assert looser(base, stricter(base, head)) == ()
    assert looser(head, stricter(head, base)) == ()


@pytest.mark.parametrize(("old", "new"), [("on", "off"), ("off", "on")])
def test_evidence_is_approved_either_way(old: str, new: str) -> None:
    """Raw numbers pass growth that evidence finds, and evidence passes luck that they do not: the base's word holds."""
    text = 'schema = 1\n[default.limits]\n"fanout.p95" = {{ increase = "10%", evidence = "{}" }}\n'
    base, head = parse_budget(text.format(old).encode()), parse_budget(text.format(new).encode())

    (change,) = looser(base, head)
    (limit,) = stricter(base, head).limits_for("support")

    assert (change.name, change.old, change.new) == ("default.limits.fanout.p95.evidence", old, new)
    assert limit.evidence == (old == "on")


def test_a_model_host_that_is_dropped_is_a_loosening() -> None:
    """A host of models that nobody watches any more."""
    base = parse_budget(b'schema = 1\n[measure]\nmodel_hosts = ["llm.example"]\n')
    head = parse_budget(b"schema = 1\n")

    assert [(change.name, change.old) for change in looser(base, head)] == [("measure.model_hosts", "llm.example")]
    assert stricter(base, head).measure.model_hosts == ("llm.example",)


def test_a_declaration_of_state_that_is_dropped_is_a_loosening() -> None:
    """Its tasks would be branched from then on; to declare one is free."""
    base = parse_budget(b'schema = 1\n[measure]\nstateful_tools = ["support", "research::tides"]\n')
    head = parse_budget(b'schema = 1\n[measure]\nstateful_tools = ["support", "orders"]\n')

    assert [(change.name, change.old) for change in looser(base, head)] == [
        ("measure.stateful_tools", "research::tides")
    ]
    assert stricter(base, head).measure.stateful_tools == ("support", "orders", "research::tides")


def test_a_new_agent_entry_is_compared_with_the_default_that_held() -> None:
    """Naming an agent for the first time can loosen it as well."""
    head = parse_budget(DEFAULT_TEXT.encode() + b'[agents.x.limits]\n"tokens.p95" = "none"\n')

    assert [change.name for change in looser(parse_budget(None), head)] == ["agents.x.limits.tokens.p95"]
