"""The same run gives the same bytes: whatever the hash seed, the order of tasks, locale, zone and process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: Every text that tells an explanation, one after the other. The argument: the order of the trials.
SCRIPT = """
import json, sys
sys.path[:0] = [{tests!r}, {report!r}]
from dataclasses import replace
from made_agents import Made, side, tool
from report_cases import cases
from pytest_fanout.explain.explain import Side, explain
from pytest_fanout.explain.redaction import redacted
from pytest_fanout.records import Past
from pytest_fanout.report import markdown, terminal
from pytest_fanout.report.json import document
from pytest_fanout.report.page.render import render
from pytest_fanout.report.why import all_lines

def agent(more):
    def made_by(made):
        made.call("You plan " + "well " * more + "for " + made.task, ["q " + made.task], "one", served="m-%d" % more)
        for number in range(2 + more):
            made.call("You read.", ["%d of %s" % (number, made.task)], "a note", tools=[tool("b"), tool("a")])
        if more:
            odd = "You read it ALL. \\u00c4\\u00e4h, \\u00df, \\u0130."
            made.call(odd, ["x"], "y", temperature=0.5, stop=["a", "b"])
    return made_by

def shuffled(told):
    reverse = sys.argv[1] == "reversed"
    order = sorted(told.samples, reverse=reverse)
    trials = sorted(told.trials, key=lambda one: (one.task, one.trial), reverse=reverse)
    return Side({{task: told.samples[task] for task in order}}, trials, {{task: None for task in order}})

base, run = (shuffled(side(agent(more), tuple("abcdefgh"), 2)) for more in (0, 2))
matched = explain("research", base, run)
made, verdict = cases()["regressed"]
if sys.argv[1] == "reversed":
    made = replace(made, tasks=tuple(reversed(made.tasks)))
for one in (matched.explanation, redacted(matched.explanation)):
    told = replace(verdict, explanations=(one,))
    texts = ["\\n".join(all_lines(one)), terminal.render(made, told), markdown.render(made, told)]
    texts += [markdown.explained(one, all_lines), json.dumps(document(made, told)), render(made, told, Past({{}}, ()))]
    sys.stdout.buffer.write("\\n".join(texts).encode())
"""


def test_every_text_is_the_same_in_two_processes_that_differ_in_all_else() -> None:
    """Terminal, summary, JSON, page and `why`, of the explanation as it is and redacted."""
    script = SCRIPT.format(tests=str(HERE.parent), report=str(HERE))
    texts = []
    for order, seed, locale, zone in (("sorted", "1", "C", "UTC"), ("reversed", "4242", "tr_TR.UTF-8", "Asia/Tokyo")):
        environ = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": locale, "LANG": locale, "TZ": zone, "PYTHONUTF8": "0"}
        done = subprocess.run([sys.executable, "-c", script, order], env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        texts.append(done.stdout)

    assert len(texts[0]) > 50_000
    assert texts[0] == texts[1]
