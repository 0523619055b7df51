"""The HTML page as a browser reads it: verdict first, all classes, nothing from elsewhere, everything escaped."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from page_world import READ, WIDE, Told, data, made_red, tree, words
from report_cases import CALM, HEAD, cases, metric, result, run, trial

from pytest_fanout.gate.past import trends_of
from pytest_fanout.judge.distribution import statistic
from pytest_fanout.records import Approval, Base, Change, ClassTotal, Part, Past, Problem, SessionFacts, Verdict
from pytest_fanout.report.page.canvas import settings
from pytest_fanout.report.page.curves import Curve, curve, of_run, thinned
from pytest_fanout.report.page.plots import trend as trend_of
from pytest_fanout.report.page.render import render, render_plain, render_taken_back
from pytest_fanout.report.page.view import hero

NOTHING = Past({}, ())
HOSTILE = (
    "<script>alert(1)</script>",
    "</script ><img src=x onerror=alert(1)><!--<script>",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{0}$ @0@ &lt;b&gt;",
    "a\x1b[31mred\x07\u202egnp.exe\u2028x\ud800",
    "日本語" * 30,
    "https://example.com/x ' onclick='x",
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return made_red(tmp_path_factory.mktemp("page") / "world")


@pytest.fixture(scope="module")
def text(red: Told) -> str:
    return render(red.run, red.verdict, red.past)


@cache
def case_page(name: str) -> str:
    return render(*cases()[name], NOTHING)


class Shape(HTMLParser):
    """What the parser of the standard library sees: elements that are open, all tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def every_page(text: str) -> list[str]:
    return [text, *(case_page(name) for name in cases()), render_plain("not measured", "run not finished", "r")]


# --- what stands where -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tone", "heading"),
    [
        ("pass", "good", "✓ Within budget"),
        ("approved", "good", "✓ Within budget"),
        ("waived", "warn", "! Waived"),
        ("regressed", "bad", "✕ Over budget"),
        ("stale", "bad", "✕ Not measured"),
        ("integrity", "bad", "✕ Not measured"),
        ("shard", "warn", "! Not measured"),
        ("partial", "warn", "! Within budget"),
    ],
)
def test_the_verdict_stands_first_and_its_colour_is_that_of_the_check(name: str, tone: str, heading: str) -> None:
    """Green is what the required check would let pass; a partial run, and one without a base of its own, is not."""
    page = tree(case_page(name))
    (h1,) = page.xpath("//h1")

    assert page.body.get("class") == tone
    assert words(h1).startswith(heading)
    assert next(page.body.iterchildren()).tag == "header"
    assert cases()[name][1].verdict in words(h1)


def test_a_green_verdict_beside_a_red_exit_of_pytest_is_not_shown_green() -> None:
    """`verify` is never 0 then, so the page is not green either."""
    made, verdict = cases()["pass"]
    top = hero(replace(made, session=replace(made.session, pytest_exit=1)), verdict)

    assert top.tone == "warn"
    assert top.caveats == ("pytest itself ended with exit 1, so that the check cannot pass.",)


def test_the_first_screen_says_which_class_how_much_why_and_what_it_costs(red: Told, text: str) -> None:
    """Tasks make 2 + n % 5 + 1 calls: p95 is 7, and 12 with five reads more. GPUs double with the calls."""
    (top,) = tree(text).xpath("//header")
    told = words(top)

    assert "support fanout.p95, model calls of a task" in told
    assert next(words(each) for each in top.xpath(".//div[@class='big']")) == "7 → to 12"
    assert "+71.4 % · limit 7" in told
    assert "100 % of the growth in calls" in told
    assert "system prompt changed (shop/agents.py:2)" in told
    assert "50 → 100 GPUs at peak" in told
    assert "pytest --fanout-budget --fanout-mode=record" in told


def test_a_growth_is_first_to_be_undone_and_else_accepted() -> None:
    """The command that accepts it is the second way out, never the first."""
    steps = hero(*cases()["regressed"]).steps

    assert [(step.word, step.text, step.is_command) for step in steps] == [
        ("Next", "bring it back under its limit", False),
        ("Or", 'fanout-baseline accept --agent research --reason "why it may cost this"', True),
    ]


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_class_has_its_part_worst_first(name: str) -> None:
    """Red classes are unfolded; each names its verdict."""
    page, verdict = tree(case_page(name)), cases()[name][1]
    parts = page.xpath("//main/details")

    assert {words(part.xpath(".//h2")[0]) for part in parts} == {item.agent for item in verdict.classes}
    assert [part.get("class").split()[-1] for part in parts] == sorted(
        (part.get("class").split()[-1] for part in parts), key=["bad", "warn", "good"].index
    )
    assert all("open" in part.attrib for part in parts if "bad" in part.get("class"))


def test_a_class_shows_curves_waterfalls_trees_trends_capacity_and_cliffs(text: str) -> None:
    """One picture each: calls and tokens of both sides, their parts, two approved metrics, GPUs; cliffs as a table."""
    page = tree(text)
    titles = [words(each) for each in page.xpath("//figcaption")]

    assert titles == [
        "fanout: model calls of a task",
        "tokens of a task",
        "What the change in calls a task is made of",
        "What the change in tokens a task is made of",
        "fanout.p95 over its approvals",
        "tokens.p95 over its approvals",
        "GPUs of all classes in windows of 60 s at peak",
    ]
    assert len(page.xpath("//table[@class='tree']")) == 3
    assert len(page.xpath("//table[@class='tree'][1]//tr[@class='parts']")) == 3
    (cliffs,) = [each for each in page.xpath("//table") if words(each).startswith("Cliffs survivable")]
    assert len(cliffs.xpath(".//tbody/tr")) == 8
    assert "✕ does not fit" in words(cliffs)


def test_beside_each_picture_stands_what_it_shows_in_words_and_as_a_table(text: str) -> None:
    """A picture has a title and a description, and its numbers in a table with a caption and headers."""
    for figure in tree(text).xpath("//figure"):
        (svg,) = figure.xpath("./svg")
        named = [figure.xpath(f".//*[@id='{key}']")[0] for key in svg.get("aria-labelledby").split()]
        assert [each.tag for each in named] == ["title", "desc"]
        assert all(words(each) for each in named)
        (table,) = figure.xpath(".//table")
        assert words(table.xpath("./caption")[0])
        assert len(table.xpath(".//tbody/tr")) >= 3


def test_parts_of_a_waterfall_add_up_to_the_change(text: str) -> None:
    """From 5 to 10 calls a task: the column of the table sums to 5, and its shares to 100 %."""
    (table,) = [each for each in tree(text).xpath("//table") if words(each).startswith("Parts of calls")]
    rows = [[words(cell) for cell in row] for row in table.xpath(".//tbody/tr")]

    assert rows[0][:2] == ["base", "5"]
    assert rows[-1] == ["run", "10", "+5"]
    assert sum(float(row[1]) for row in rows[1:-1]) == 5
    assert sum(int(row[2].removesuffix(" %")) for row in rows[1:-1]) == 100


def test_a_lost_cache_has_a_waterfall_of_its_own_in_the_words_of_its_table(red: Told) -> None:
    """Tokens that no cache served went from 100 to 140, all of it by lost hits at the reader's site."""
    (explanation,) = red.verdict.explanations
    site = explanation.sites[1]
    total = ClassTotal("uncached_tokens", "mean", Fraction(100), Fraction(140), ("question-01",))
    others = [each for each in explanation.totals if each.metric != "uncached_tokens"]
    parts = [each for each in explanation.parts if each.metric != "uncached_tokens"]
    lost = Part("uncached_tokens", "mean", "cache", site.key, Fraction(40))
    made = replace(explanation, totals=(*others, total), parts=(*parts, lost))
    page = tree(render(red.run, replace(red.verdict, explanations=(made,)), red.past))
    title = "What the change in tokens that no cache served a task is made of"
    (figure,) = [each for each in page.xpath("//figure") if words(each.xpath("./figcaption")[0]) == title]

    assert [words(each) for each in figure.xpath("./svg/text")] == [
        "base", "100", "cache hits lost", "+40", f'"{READ}"', "run", "140",
    ]  # fmt: skip
    assert [words(row) for row in figure.xpath(".//tbody/tr")] == [
        "base100", f'cache hits lost: "{READ}"+40100 %', "run140+40",
    ]  # fmt: skip


def test_trends_come_from_approvals_oldest_first(red: Told) -> None:
    """5 and then 7 calls were approved; of one day the order is that of the paths, and common tasks are no steps."""
    assert [(trend.metric, [step.value for step in trend.steps]) for trend in red.past.trends] == [
        ("fanout.p95", [5, 7]),
        ("tokens.p95", [1150, 1610]),
    ]
    common = Change("metric", "fanout.p95", "common", 1, 2)
    made = Approval("p", "baseline", "support", None, None, None, {}, (common,), "r", "d", "2026-11-01", "n")
    assert trends_of([made, replace(made, kind="waiver"), replace(made, subject="other")], "support") == []


# --- nothing from elsewhere ------------------------------------------------------------------------------------------


def test_the_page_needs_no_network_and_no_script(text: str) -> None:
    """No address that could be fetched, no handler, no script that runs, and a policy that forbids all three."""
    for page in every_page(text):
        for tag, attributes in Shape(page).tags:
            assert tag not in {
                "link",
                "img",
                "iframe",
                "object",
                "embed",
                "base",
                "form",
                "image",
                "a",
                "foreignobject",
            }
            assert not [name for name in attributes if name.startswith("on") or name in ("src", "action", "srcset")]
            assert attributes.get("href", "#").startswith("#")
            assert tag != "script" or attributes["type"] == "application/json"
        policy = tree(page).xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
        assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
        outside = page[: page.find('id="fanout-data"')]
        assert not re.search(r"https?:|url\(|@import|//[a-z]", outside)


def test_tags_are_closed_ids_are_unique_and_names_point_at_them(text: str) -> None:
    """html.parser sees a tree, and nothing that is named is missing."""
    for page in every_page(text):
        shape = Shape(page)
        ids = [attributes["id"] for _, attributes in shape.tags if "id" in attributes]
        named = [
            attributes[name] or "" for _, attributes in shape.tags for name in attributes if name == "aria-labelledby"
        ]
        assert shape.open == []
        assert len(ids) == len(set(ids))
        assert {key for names in named for key in names.split()} <= set(ids)


def test_headings_come_in_order_and_tables_have_headers(text: str) -> None:
    """One h1, no level is skipped, each column and each row has a header, and the language is said."""
    for page in every_page(text):
        root = tree(page)
        levels = [int(each.tag[1]) for each in root.xpath("//h1|//h2|//h3|//h4")]
        assert root.get("lang") == "en"
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        for table in root.xpath("//table"):
            width = len(table.xpath("./thead/tr/th[@scope='col']"))
            assert all(len(row) == width for row in table.xpath("./tbody/tr"))
            assert all(row[0].tag == "th" and row[0].get("scope") == "row" for row in table.xpath("./tbody/tr"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(text: str, theme: str) -> None:
    """WCAG AA: 4.5 to 1 for texts on page and cards, for white on the first screen; 3 to 1 for the curves."""
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    blocks = re.findall(r":root \{(.*?)\}", style[1], re.DOTALL)
    colours: dict[str, str] = {}
    for block in blocks[: 1 if theme == "light" else 2]:
        colours |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))

    for name in ("ink", "muted", "good", "bad", "warn"):
        assert contrast(colours[name], colours["card"]) >= 4.5, name
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("good-hero", "bad-hero", "warn-hero"):
        assert contrast("#ffffff", colours[name]) >= 4.5, name
    assert contrast(colours["base"], colours["card"]) >= 3


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# --- what strangers wrote --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_what_strangers_wrote_is_text_wherever_it_stands(red: Told, text: str, hostile: str) -> None:
    """Ids of tasks, prompts, differences, reasons, problems: the page has the same elements as without them."""

    def spoilt(value: Any) -> Any:
        for plain in (READ, WIDE, "question-04", "Sources are now checked twice.", "shop/agents.py:2"):
            value = value.replace(plain, hostile)
        return value

    masked = _with_texts(spoilt)
    problem = Problem("no-calls", hostile, "notice", "support", hostile)
    given, plain = (
        render(
            masked(red.run) if change else red.run,
            replace(masked(red.verdict) if change else red.verdict, problems=(replace(problem, text=said, task=said),)),
            masked(red.past) if change else red.past,
        )
        for change, said in ((True, hostile), (False, "a text"))
    )

    def skeleton(text: str) -> list[str]:
        return [tag for tag, _ in Shape(text).tags]

    assert skeleton(given) == skeleton(plain)
    assert given.encode()  # no lone surrogate is left
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", given)
    found = data(given)
    assert not re.search("[<>&]", tree(given).xpath("//script")[0].text)
    assert any(hostile in problem["text"] for problem in found["report"]["notices"])


def _with_texts(change: Any) -> Any:
    """What applies a change to every text of a record."""
    from pytest_fanout.store.masking import Masker

    masker = Masker({})
    masker.text = change  # type: ignore[method-assign]
    return lambda record: masker._masked(record)


# --- numbers and bytes -----------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_bytes(red: Told, text: str) -> None:
    """No date, no random id, no path."""
    assert render(red.run, red.verdict, red.past) == text
    assert str(Path.cwd()) not in text


def test_a_curve_has_the_percentiles_of_the_judge_and_ends_below_one_where_values_are_unknown() -> None:
    """Two tasks of two trials each, one value unknown: three quarters are known, and no percentile is."""
    tasks = (
        trial("a", "x", 1, samples={"fanout": 2}), trial("a", "x", 2, samples={"fanout": 4}),
        trial("a", "y", 1, samples={"fanout": 4}), trial("a", "y", 2, samples={"fanout": None}),
        trial("a", "z", 1, samples={"fanout": 9}, status="stale"),
    )  # fmt: skip
    values = of_run(tasks, "fanout")
    found = curve(values)

    assert found == Curve(((2, 0.25), (4, 0.75)), (), dict.fromkeys(("p50", "p95", "p99", "max")), "x", 2, 4, 1)
    assert curve({"x": [None]}) is None
    assert curve({}) is None
    known = curve({"x": [1, 2], "y": [7]})
    assert known is not None
    assert known.statistics["p95"] == statistic({"x": [1, 2], "y": [7]}, "p95") == 7
    assert known.marks == ((2, 0.50), (7, 0.95), (7, 0.99))


def test_thinning_keeps_the_last_step_of_each_column() -> None:
    """What is left reaches the same height at the right end of each column of the picture."""
    steps = [(value, value / 100) for value in range(1, 101)]

    assert thinned(steps, 0, 100, 10) == [
        (9, 0.09), (19, 0.19), (29, 0.29), (39, 0.39), (49, 0.49), (59, 0.59), (69, 0.69), (79, 0.79), (89, 0.89),
        (99, 0.99), (100, 1.0),
    ]  # fmt: skip


def test_twenty_classes_of_two_hundred_tasks_stay_below_three_megabytes() -> None:
    """All of them grown, with curves of 200 different values: the page is a file that can be sent."""
    agents = [f"class-{number:02d}" for number in range(20)]
    tasks = tuple(
        trial(agent, f"task-{n:04d}", samples={"fanout": n % 37, "input_tokens": 900 * n % 7919, "output_tokens": n})
        for agent in agents
        for n in range(200)
    )
    judged = tuple(result(agent, "regressed", metric("fanout.p95", 30, 35, 33, True)) for agent in agents)
    page = render(run(*tasks), Verdict("regressed", judged, (), cases()["pass"][1].base, HEAD), NOTHING)

    assert len(page.encode()) < 3 * 2**20
    assert len(tree(page).xpath("//main/details[@open]")) == 20
    assert len(data(page)["trials"]["class-07"]["run"]["task"]) == 200


# --- pages of what came otherwise ------------------------------------------------------------------------------------


def test_a_verdict_that_was_taken_back_is_never_green() -> None:
    """Whatever the verdict was, its page says what is true now."""
    made, verdict = cases()["pass"]
    after = tree(render_taken_back(replace(made, session=SessionFacts(pytest_exit=3)), verdict))
    stopped = replace(verdict, verdict="invalid", problems=(Problem("call-after-end", "a call came", "invalid"),))

    assert after.body.get("class") == "bad"
    assert words(after.xpath("//h1")[0]) == "✕ Not measured"
    assert "a call came" in words(tree(render_taken_back(made, stopped)).body)


def test_without_anchors_and_commits_the_page_still_says_what_it_knows() -> None:
    """A base that is not there, a class without any number."""
    verdict = Verdict("no-base", (replace(CALM, metrics=()),), (), Base(None, "none", problem="no commit"), HEAD)
    page = tree(render(run(), verdict, NOTHING))

    assert "base no commit" in words(page.xpath("//header")[0])
    assert page.xpath("//figure") == []


def test_an_axis_has_whole_numbers_only_and_none_twice() -> None:
    """A value that never moved: its trend has three ticks, one below and one above it."""
    picture = tree(str(drawn_trend([23, 23], 23)))

    assert [words(each) for each in picture.xpath("//text")] == ["22", "23", "24", "2026-01-01", "this run"]


def drawn_trend(values: list[int], now: int) -> Any:
    with settings():
        return trend_of("t", "a title", "a text", values, ["2026-01-01"] * len(values), now)
