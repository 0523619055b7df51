"""A project that starts from its cassettes: import, replay, accept; and what its report says of them."""

from __future__ import annotations

import sys

from model_server import ModelServer
from project import Project

AGENT_TEST = """
import pytest, shop

@pytest.mark.fanout(agent="support")
def test_refund():
    assert shop.answer({"ask": "one two", "items": 2})
"""


def test_a_class_starts_from_cassettes(project: Project, model: ModelServer) -> None:
    """Without a live call the run is measured: counts of the cassette, no times, a notice."""
    project.write("pyproject.toml", "[tool.fanout]\n")
    project.write("tests/test_shop.py", AGENT_TEST)
    recorder = project.write(
        "record.py",
        "import shop, vcr\n"
        "with vcr.use_cassette('tests/cassettes/test_shop/test_refund.yaml'):\n"
        "    shop.answer({'ask': 'one two', 'items': 2})\n",
    )
    assert project.run(sys.executable, str(recorder)).exit == 0
    server_calls = len(model.generated)
    done = project.baseline("import-cassettes", "tests", "--agent", "support")
    run = project.pytest("tests", "--fanout-trials=1", PYTHONPATH=str(project.root))

    assert done.exit == 0, done.text
    assert (server_calls, len(model.generated)) == (3, 3)  # the run sent none
    assert run.verdict == "no-baseline", run.text
    (trial,) = run.agent["tasks"]
    assert trial["samples"]["fanout"] == 3
    assert trial["samples"]["duration_ms"] is None
    (notice,) = trial["problems"]
    assert (notice["slug"], notice["verdict"]) == ("imported-recording", "notice")
    assert notice["text"] == (
        "recordings were imported from cassettes: counts and tokens are theirs, durations and the order of concurrent "
        "calls are unknown\n  mend: record them anew for those: pytest --fanout-budget --fanout-mode=rerecord"
    )
    assert "recordings were imported from cassettes" in " ".join(run.text.split())
