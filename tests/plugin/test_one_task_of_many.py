"""Who selects one task reads the recordings of one."""

from __future__ import annotations

from project import Project

COUNTING = """
import atexit, os, sys

opened = set()

def hook(event, args):
    if event == "open" and isinstance(args[0], str) and "fixtures/recordings" in args[0] and args[0].endswith(".jsonl"):
        opened.add(os.path.basename(os.path.dirname(args[0])))

sys.addaudithook(hook)
atexit.register(lambda: open("opened.txt", "w").write(" ".join(sorted(name.rpartition("-")[0] for name in opened))))
"""


def test_one_task_reads_its_own_recordings_alone(accepted: Project) -> None:
    """Hosts, trials and the digests of a partial run come from its files; a whole run reads all."""
    accepted.write("conftest.py", COUNTING)
    one = accepted.pytest("-k", "task-2")
    of_one = (accepted.root / "opened.txt").read_text()
    whole = accepted.pytest()

    assert one.report is not None
    assert (one.report["session"]["partial"], one.report["session"]["ran"]) == (True, 5)
    assert of_one == "task-2"
    assert (accepted.root / "opened.txt").read_text() == "task-1 task-2 task-3"
    assert whole.agent["tasks"]
