"""The terminal report: first line outcome and number, last line the next command, nothing wider than the terminal."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_cases import BASE, CALM, HEAD, cases, golden, load, metric, projection, result, run, trial

from pytest_fanout.records import (
    CallSite,
    ControlTrial,
    FleetPlan,
    Past,
    Problem,
    SessionFacts,
    Side,
    SiteDelta,
    Spread,
    StaleNote,
    TaskDelta,
    TaskRun,
    Verdict,
)
from pytest_fanout.report import markdown, terminal
from pytest_fanout.report.facts import session_texts, site_text
from pytest_fanout.report.page.render import render as render_page
from pytest_fanout.report.printable import width
from pytest_fanout.report.summary import first_line, headline, problem_groups

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = (
    "::error::x",
    "|<img>@org",
    "a\x1b[31mred\x07",
    "‮gnp.exe",
    "日本語" * 30,
    "a\nwithin budget (pass)",
    "##[error]x",
    "\x9b2J",
)


def lines(name: str) -> list[str]:
    return terminal.render(*cases()[name]).split("\n")


@pytest.mark.parametrize("name", sorted(golden()))
def test_each_verdict_looks_as_in_its_golden_file(name: str) -> None:
    """The whole text of each report is as it was read and found good."""
    assert golden()[name] == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("pass", "within budget (pass): support tokens.p95 2,100 -> 2,180, limit 2,600"),
        ("regressed", "over budget (regressed): research fanout.p95 7 -> 11, limit 8; 1 more limit"),
        ("approved", "within budget (approved): research fanout.p95 7 -> 11, limit 8, approved up to"),
        ("waived", "waived (waived): research fanout.p95 7 -> 11, limit 8; 1 more limit exceeded"),
        ("stale", "not measured (stale): 4 tasks of research no longer fit their recordings"),
        ("incomplete", "not measured (incomplete): 2 of 20 tasks of research did not run"),
        ("invalid", "not measured (invalid): research: no model call was counted"),
        ("no-baseline", "not measured (no-baseline): research has no accepted baseline; 20 tasks ran"),
        ("integrity", "not measured (integrity): baselines/research.json:3: is not valid JSON:"),
        ("no-base", "not measured (no-base): HEAD and origin/main share no commit"),
        ("shard", "not measured (shard): shard 1/3 ran 7 of 20 tasks of support; only the"),
        ("partial", "within budget (pass, partial 1/20): support tokens.p95 2,100 -> 2,180, limit"),
    ],
)
def test_the_first_line_says_outcome_verdict_and_the_number_that_decided(name: str, first: str) -> None:
    """Outcome in words, the verdict's code, then the deciding number."""
    assert lines(name)[0] == first


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("pass", "next      nothing to do"),
        ("stale", "next      pytest --fanout-budget --fanout-mode=record"),
        ("incomplete", "next      pytest --fanout-budget"),
        ("no-baseline", 'next      fanout-baseline accept --agent research --reason "..."'),
        ("no-base", "next      git fetch --unshallow"),
        ("shard", "next      fanout-baseline combine --report GLOB"),
        ("partial", "next      pytest --fanout-budget"),
    ],
)
def test_the_last_line_is_the_next_command(name: str, last: str) -> None:
    """The gate's advice, or what usually helps with that verdict."""
    assert lines(name)[-1] == last


def test_a_command_that_is_too_long_breaks_between_words_and_stays_fit_to_copy() -> None:
    """A quoted reason is one word; a backslash ends each line but the last."""
    assert lines("regressed")[-2:] == [
        "next      fanout-baseline accept --agent research --reason \\",
        '          "why it may cost this"',
    ]


def test_a_red_gate_shows_old_new_change_limit_and_gpus() -> None:
    """7 -> 11 is +57.1 %, 18,400 -> 31,250 is +69.8 %; 12 -> 19 GPUs, 15 -> 22 with the 3 of the other class."""
    shown = lines("regressed")

    assert "research  fanout.p95       7      11   +57.1 %        8  OVER" in shown
    assert "research  tokens.p95  18,400  31,250   +69.8 %   20,240  OVER" in shown
    assert "capacity  research 12 -> 19 GPUs at peak" in shown
    assert "          support 3 GPUs at peak, unchanged" in shown
    assert "          all classes: 15 -> 22 GPUs at peak" in shown


def test_the_same_change_in_many_tasks_is_said_once() -> None:
    """Three tasks with the same edit in six trials are one entry with a count."""
    shown = lines("stale")
    at = shown.index("stale     3 tasks of research, call 1: a, b, c")

    assert shown[at + 1 : at + 4] == [
        '            system prompt: "You plan" became "You plan and verify"',
        "          1 task of research, request 2, a tool's: d",
        "            GET /search: query q changed",
    ]


@pytest.mark.parametrize("name", sorted(cases()))
@pytest.mark.parametrize("columns", [40, 57, 80, 120])
def test_no_line_is_wider_than_the_terminal(name: str, columns: int) -> None:
    """At any width from 40 columns, with and without ASCII."""
    for ascii_only in (False, True):
        text = terminal.render(*cases()[name], width=columns, ascii_only=ascii_only)
        assert [line for line in text.split("\n") if width(line) > columns] == []


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_report_has_a_gpu_line_for_each_class_and_for_all(name: str) -> None:
    """Also where nothing was measured the cost is spoken of."""
    case = cases()[name]
    text = terminal.render(*case)
    capacity = text[text.index("\ncapacity  ") :]

    for item in case[1].classes:
        assert any(f" {item.agent} " in line and "GPU" in line for line in capacity.split("\n"))
    assert any("all classes: " in line and "GPU" in line for line in capacity.split("\n"))


def test_without_demand_capacity_is_said_per_1000_tasks_and_not_rounded_up() -> None:
    """Rounded up, 0.5 and 0.75 GPUs would both be 1 and the growth would be lost."""
    verdict = Verdict("pass", (CALM,), (), BASE, HEAD, projections=(projection("support", 1, 1, per_1000=True),))
    text = terminal.render(run(), verdict)

    assert "capacity  support 0.5 -> 0.75 GPUs per 1,000 tasks/hour\n" in text
    assert "          GPU profile h100-sxm-llama-70b (vendor page, 2025)\n" in text


def test_demand_for_some_classes_only_gives_no_sum() -> None:
    """GPUs at peak and GPUs per 1,000 tasks an hour cannot be added."""
    mixed = (projection("research", 12, 19), projection("support", 1, 1, per_1000=True))
    verdict = Verdict("pass", (CALM, result("research", "pass")), (), BASE, HEAD, projections=mixed)

    assert "all classes: GPUs not summed: demand is given for some classes only" in terminal.render(run(), verdict)


@pytest.mark.parametrize(("together", "how"), [(21, ", rounded up once for all"), (22, "")])
def test_one_fleet_may_need_less_than_the_sum_of_its_classes(together: int, how: str) -> None:
    """18.75 and 2.75 GPUs are 19 and 3 in whole ones, 22 in sum; a class may use what the other leaves of its last."""
    classes = (projection("research", 12, 19), projection("support", 3, 3))
    still = Spread(1.0, 1.0, 1.0, (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    base, now = (Side(gpus, load(gpus), None, still, still, still, still) for gpus in (15, together))
    plan = FleetPlan(("research", "support"), base, now, None, ())
    verdict = Verdict("pass", (CALM, result("research", "pass")), (), BASE, HEAD, projections=classes, fleet=plan)

    assert f"all classes: 15 -> {together} GPUs at peak{how}\n" in terminal.render(run(), verdict, width=120)


def test_money_is_said_where_prices_are_known() -> None:
    """12 GPUs at 3 USD an hour are 864 USD a day, 19 are 1,368; the same price per 1,000 tasks is said once."""
    grown = projection("support", 12, 19)
    assert grown.base is not None
    grown = replace(
        grown,
        base=replace(grown.base, usd_per_day=864.0, usd_per_1000_tasks=1.5),
        run=replace(grown.run, usd_per_day=1368.0, usd_per_1000_tasks=1.5),
    )
    text = terminal.render(run(), Verdict("pass", (CALM,), (), BASE, HEAD, projections=(grown,)), width=120)

    said = "capacity  support 12 -> 19 GPUs at peak; 864 -> 1,368 USD a day of GPUs; 1.50 USD per 1,000 tasks"
    assert said in text.split("\n")


def test_gpus_that_are_not_known_are_never_a_number() -> None:
    """A projection without GPUs says unknown for the class and for all."""
    unknown = replace(projection("support", 1, 1), run=load(None), gpus_run=None)
    text = terminal.render(run(), Verdict("pass", (CALM,), (), BASE, HEAD, projections=(unknown,)))

    assert "capacity  support GPUs at peak unknown\n          all classes: GPUs at peak unknown\n" in text


def test_an_unknown_number_is_never_ok_and_never_zero() -> None:
    """Tokens that the provider did not report show as unknown in value and state."""
    verdict = Verdict("pass", (result("support", "pass", metric("tokens.p95", 2100, None, 2600)),), (), BASE, HEAD)

    row = next(line for line in terminal.render(run(), verdict).split("\n") if "tokens.p95  " in line)

    assert row.split() == ["support", "tokens.p95", "2,100", "unknown", "-", "2,600", "unknown"]


def test_a_class_that_was_not_measured_has_no_row_that_says_ok() -> None:
    """Numbers below the limit prove nothing in a class that is stale."""
    assert "research  fanout.p95       7      2   -71.4 %        8  -" in lines("stale")


def test_a_calm_class_shows_the_three_limits_it_is_nearest_to() -> None:
    """Of five limits kept, those used by 90, 80 and 70 % are shown, in their own order."""
    metrics = [metric(f"m{used}.p95", 10, used, 100) for used in (10, 70, 90, 20, 80)]
    text = terminal.render(run(), Verdict("pass", (result("support", "pass", *metrics),), (), BASE, HEAD))

    assert [line.split()[1] for line in text.split("\n") if line.startswith("support  m")] == [
        "m70.p95",
        "m90.p95",
        "m80.p95",
    ]
    assert "          2 more limits kept, in the report\n" in text


def test_problems_come_worst_first_and_at_most_ten() -> None:
    """Twelve problems: integrity leads, ten are shown, the rest is counted."""
    problems = [Problem("s", f"problem {number}", "stale") for number in range(11)]
    problems.append(Problem("bad-json", "altered", "integrity"))
    shown = terminal.render(run(), Verdict("integrity", (), tuple(problems), BASE, HEAD)).split("\n")
    at = shown.index("problems  integrity: altered [bad-json]")

    assert shown[at + 9 : at + 12] == [
        "          stale: problem 8 [s]",
        "          2 more in the report",
        "capacity  all classes: GPUs not projected: no class was judged",
    ]


def test_one_problem_in_many_tasks_is_said_once() -> None:
    """The same text in trials of three tasks is one line with the number of tasks."""
    tasks = [trial("support", name, problems=(Problem("no-calls", "no model call was counted"),)) for name in "abc"]
    text = terminal.render(run(*tasks), Verdict("invalid", (), (), BASE, HEAD))

    assert "problem   invalid: support, 3 tasks: no model call was counted [no-calls]\n" in text


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_hostile_text_reaches_the_terminal_only_as_visible_characters(hostile: str, ascii_only: bool) -> None:
    """Ids, prompts and errors can neither steer the terminal, nor forge a line, nor run a workflow command."""
    note = StaleNote(1, "model", (hostile,), 1, 1)
    site = CallSite("0" * 16, "x", hostile, (), hostile)
    bad = result(
        "support", "stale", metric(f"tool_calls[{hostile}].p95", 1, 2, 3, max=2, max_task=hostile),
        stale=(hostile,), missing=(hostile,), new=(hostile,), approval_why=hostile,
        problems=(Problem("slug", hostile, "stale", "support", hostile),),
        top=(TaskDelta(hostile, (1,), (2,), (1,), (2,)),),
    )  # fmt: skip
    verdict = Verdict(
        "stale", (bad,), (Problem("slug", hostile, "notice"),), replace(BASE, source=hostile), HEAD,
        sites=(SiteDelta("support", site, None, 100, None, 5, "new"),), next=(hostile, hostile),
    )  # fmt: skip
    text = terminal.render(run(trial("support", hostile, stale=note)), verdict, ascii_only=ascii_only)

    assert [char for char in text if char != "\n" and (ord(char) < 32 or 126 < ord(char) < 160 or char == "‮")] == []
    assert [
        line
        for line in text.split("\n")
        if line.lstrip().startswith("::") or line.startswith("within") or "##[" in line
    ] == []
    assert max(map(width, text.split("\n"))) <= 80
    assert not ascii_only or text.isascii()


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_that_cannot_encode_gets_ascii(encoding: str) -> None:
    """A24: accents, CJK and emoji in ids are backslash-escaped, arrows and ellipses spelled out; the table stands."""
    verdict = Verdict(
        "stale", (result("support", "stale", *CALM.metrics, stale=("café…", "東", "🙂")),), (), BASE, HEAD
    )
    text = terminal.render(run(), verdict, ascii_only=True)

    text.encode(encoding)
    assert "stale     3 tasks of support: caf\\xe9..., \\u6771, \\U0001f642\n" in text
    assert "support  fanout.p95       3      3       0 %        4  -\n" in text


def test_colour_changes_no_text() -> None:
    """Colour is added around whole lines; taken away, the text is the same."""
    case = cases()["regressed"]
    painted = terminal.render(*case, color=True)

    assert painted.startswith("\x1b[1;31mover budget (regressed)")
    assert painted.replace("\x1b[1;31m", "").replace("\x1b[31m", "").replace("\x1b[0m", "") == terminal.render(*case)


def test_long_names_make_the_table_a_list_rather_than_too_wide() -> None:
    """A class of 64 characters and a tool metric do not fit a table of 80 columns."""
    agent = "a" * 64
    verdict = Verdict(
        "regressed", (result(agent, "regressed", metric("tool_calls[search].p95", 1, 3, 2, True)),), (), BASE, HEAD
    )
    text = terminal.render(run(), verdict)

    assert f"{agent}\n  tool_calls[search].p95: base 1, run 3, change +200 %, limit 2  OVER\n" in text


def test_an_unsealed_run_and_the_number_of_the_draw_are_said() -> None:
    """Keys that are not sealed, and recording until green, must be seen."""
    text = terminal.render(
        run(trial("support", "refund", draw=3), sealed=False), Verdict("pass", (CALM,), (), BASE, HEAD)
    )

    assert "same draw (draw 3)" in text
    assert "API keys were not sealed" in text


def test_trials_that_ended_badly_and_the_models_that_served_are_listed() -> None:
    """Capped and failed tasks stay in the numbers and are named; a served model other than the requested one shows."""
    tasks = (
        trial("support", "b", 1, status="capped", models_requested=("m",), models_served=("m-2026",)),
        trial("support", "a", 1, status="capped"),
        trial("support", "a", 2, status="capped"),
        trial("support", "c", 1, status="failed"),
    )
    shown = terminal.render(run(*tasks), Verdict("pass", (CALM,), (), BASE, HEAD)).split("\n")

    assert "          capped: 3 trials of a, b" in shown
    assert "          failed: 1 trial of c" in shown
    assert "          model m, served by m-2026" in shown


def test_trials_that_ended_badly_say_which_cap_and_which_error() -> None:
    """Every cap once; of errors the first line, two of them, each at most a hundred characters."""
    tasks = (
        trial("support", "a", status="capped", capped="tokens", error="BudgetExceeded: stopped"),
        trial("support", "b", status="capped", capped="fanout"),
        trial("support", "c", status="timeout", capped="wall_seconds"),
        trial("support", "d", status="failed", error="OSError: no\nmore"),
        trial("support", "e", status="failed", error="KeyError: x"),
        trial("support", "f", status="failed", error="TypeError: y"),
    )
    shown = terminal.render(run(*tasks), Verdict("pass", (CALM,), (), BASE, HEAD)).split("\n")

    assert "          capped: 2 trials of a, b (by fanout, tokens)" in shown
    assert "          timeout: 1 trial of c (by wall_seconds)" in shown
    assert "          failed: 3 trials of d, e, f: KeyError: x; OSError: no and 1 more" in shown


def _shown(*trials: TaskRun, **fields: Any) -> str:
    research = result("research", "stale", draw="none", stale=tuple(t.task for t in trials if t.status == "stale"))
    return terminal.render(run(*trials, **fields), Verdict("stale", (research,), (), BASE, HEAD))


def test_what_volatile_ignored_is_listed() -> None:
    """Each entry that was in force says in how many requests of how many tasks something differed that it ignored."""
    trials = [trial("research", task, ignored={"/metadata/run": 3}) for task in ("a", "b")]
    shown = _shown(*trials, volatile=("/metadata/run", "on \\d+"))

    assert "ignored   volatile '/metadata/run': differences in 6 requests of 2 tasks\n" in shown
    assert "          volatile 'on \\d+': nothing that differed\n" in shown
    assert "volatile" not in _shown(*trials, volatile=("/metadata/run",), mode="live")


def test_the_entries_that_would_make_recordings_replay_stand_ready() -> None:
    """They stand with those that budget.toml has, one a line and unbroken, as TOML that reads as what was meant."""
    found = ("Today is \\d{4}-\\d{2}-\\d{2}", "it's [0-9a-f]{8}")
    text = _shown(trial("research", "a", volatile=found), trial("research", "b", volatile=found), volatile=("/seed",))
    block = text[text.index("volatile = [") : text.index("]\n", text.index("it's")) + 40]
    lines = [line.strip() for line in block.split("\n")]

    assert tomllib.loads("\n".join(lines[: lines.index("]") + 1])) == {"volatile": ["/seed", *found]}


def test_requests_that_were_not_made_again_are_reported() -> None:
    """Fewer calls than recorded are no fault and no secret; what a stale trial has not come to is none of them."""
    shown = _shown(
        trial("research", "a", leftover=2),
        trial("research", "b", leftover=1),
        trial("research", "c", leftover=9, status="stale"),
    )

    said = "fewer calls than recorded: 3 recorded requests not made in 2 trials of a, b max"
    assert said in " ".join(shown.replace("stale     ", "max ").split())


def test_one_change_that_stands_in_many_texts_is_said_once() -> None:
    """What groups is the change, not the words around it; the calls in which it came are a range."""
    notes = [
        StaleNote(call, "model", (f'messages[1] (user): "about {task}. In short." -> "about {task}."',), 4, 1, 0, kinds)
        for call, task, kinds in ((1, "boats", ("…In short…",)), (3, "trains", ("…In short…",)))
    ]
    shown = _shown(*(trial("research", f"t{note.call}", status="stale", stale=note) for note in notes))

    assert "stale     2 tasks of research, calls 1 to 3: t1, t3\n" in shown
    assert "boats" in shown
    assert "trains" not in shown


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "the server x did not answer; its last lines on stderr:\nTraceback\n  mend: run it",
            "the server x did not answer",
        ),
        ("it failed:\nTraceback", "it failed"),
        ("one; two\n  mend: three", "one; two"),
    ],
)
def test_the_headline_does_not_announce_lines_that_it_leaves_out(text: str, line: str) -> None:
    """What the first line of a problem says of the lines below it is left out with them."""
    assert first_line(text) == line


def test_the_number_of_a_partial_run_is_of_all_classes() -> None:
    """Tasks of anchors count beside those of eval sets; of a class that nobody listed, no number is claimed."""
    facts = SessionFacts(expected=1, partial=True)
    one = run(trial("marked", "a"), session=facts, definitions={"listed": {"x": "1", "y": "2"}})
    alone = run(trial("marked", "a"), session=facts, definitions={})
    judged = Verdict("pass", (result("marked", "pass", tasks_expected=6, tasks_ran=1),), (), BASE, HEAD)
    new = Verdict("pass", (result("marked", "pass", tasks_expected=1, tasks_ran=1),), (), BASE, HEAD)

    assert headline(one, judged).startswith("within budget (pass, partial 1/8): ")
    assert headline(alone, new).startswith("within budget (pass, partial): ")


def test_what_follows_the_first_step_is_told_from_what_may_take_its_place() -> None:
    """A commit of what was accepted is no alternative to accepting it."""
    steps = ("fanout-baseline accept", "pytest --fanout-budget", "git add baselines && git commit, once accepted")
    verdict = Verdict("regressed", (), (), BASE, HEAD, next=steps)

    page = terminal.render(run(), verdict).splitlines()

    assert page[-4:] == [
        "or        pytest --fanout-budget",
        "then      git add baselines && git commit, once accepted",
        "",
        "next      fanout-baseline accept",
    ]


def test_the_calls_of_the_control_arm_are_told_beside_the_runs_own() -> None:
    """They cost as much as any other; the totals are the head's alone."""
    arm = tuple(ControlTrial("support", "refund", n, "ok", True, {"fanout": 7}) for n in (1, 2))

    page = terminal.render(replace(run(), control=arm), Verdict("pass", (), (), BASE, HEAD))

    assert "control arm: 14 more model calls in 2 trials" in page


def test_the_class_that_a_problem_names_stands_before_it_once() -> None:
    """Whether the text begins with it or not, and with the number of tasks beside it."""
    made, verdict = cases()["pass"]
    agent = verdict.classes[0].agent
    named = replace(
        verdict,
        problems=(
            Problem("drift", f"{agent}: p95 grew", "notice", agent),
            Problem("few-trials", "the anchor is small", "notice", agent),
            Problem("no-calls", f"{agent}: no call came", "notice", agent, "a task"),
        ),
    )

    told = [f"{group.where}: {group.text}" for group in problem_groups(made, named, notices=True)]

    assert told[:3] == [f"{agent}: p95 grew", f"{agent}: the anchor is small", f"{agent} a task: no call came"]
    for text in (terminal.render(made, named), markdown.render(made, named), render_page(made, named, Past({}, ()))):
        assert f"{agent}: {agent}:" not in text


def test_sites_that_begin_alike_are_told_apart() -> None:
    """No text stands there twice, and only prompts of one side are several."""
    old = CallSite("aa", "openai.chat", "m", (), "You answer the customers of the shop")
    new, more = replace(old, fingerprint="bb"), replace(old, fingerprint="cc", tools=("search",))
    deltas = [
        SiteDelta("a", old, 100, None, 900, None, "gone"),
        SiteDelta("a", new, None, 100, None, 900, "new"),
        SiteDelta("a", more, None, 100, None, 900, "new"),
    ]

    assert [site_text(delta, deltas[:2]).partition("), ")[0] for delta in deltas[:2]] == [
        'gone in a: "You answer the customers of the shop" (m',
        'new call site in a: "You answer the customers of the shop" (m',
    ]
    both = [replace(deltas[0], change="changed"), deltas[1]]
    assert [site_text(delta, both).partition("), ")[0] for delta in both] == [
        'changed in a: "You answer the customers of the shop" (m, one of several prompts that begin so',
        'new call site in a: "You answer the customers of the shop" (m, one of several prompts that begin so',
    ]
    assert [site_text(delta, deltas[1:]).partition("), ")[0] for delta in deltas[1:]] == [
        'new call site in a: "You answer the customers of the shop" (m, no tools',
        'new call site in a: "You answer the customers of the shop" (m, tools search',
    ]


def test_a_selection_that_left_a_whole_class_out_names_it() -> None:
    """Each task of the class that was selected ran: ``partial 1/1: tasks were left out`` would be no help."""
    facts = SessionFacts(expected=1, collected=1, ran=1, partial=True)
    shown = run(trial("support", "a"), agents=("support", "triage"), session=facts)

    assert "partial: a selection left a class (triage) out; nothing can be accepted from it" in session_texts(
        shown, Verdict("pass", (CALM,), (), BASE, HEAD)
    )
