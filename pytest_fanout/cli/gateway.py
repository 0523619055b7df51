"""``fanout-gateway``: runs a command behind the gateway, or keeps one up. Words and exit codes only."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pytest_fanout.cli.child import Child, join_outer
from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.records import Caps, MeasureRules
from pytest_fanout.report.printable import escape
from pytest_fanout.store.masking import Masker

if TYPE_CHECKING:
    from pytest_fanout.meter import TaskScope

_VARIABLE = "FANOUT_GATEWAY"  # that of meter.gateway, which an inner gateway need not load
_AGENT = "gateway"
_EXIT_NO_COMMAND = 127
_EXIT_NOT_RUNNABLE = 126
_CAPS = tuple(cap.name for cap in dataclasses.fields(Caps))


def parse_caps(words: Sequence[str]) -> Caps:
    """``NAME=N`` each; what is not named is unbounded.

    Raises:
        UsageError: a name that is no cap, or a value that is no number from 1.
    """
    values: dict[str, int | None] = dict.fromkeys(_CAPS)
    for word in words:
        name, _, number = word.partition("=")
        if name not in values or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise UsageError(
                "bad-cap",
                f"--cap {word} is not NAME=N, with a whole number from 1 and a name of: {', '.join(_CAPS)}",
                mend="--cap fanout=50",
            )
        values[name] = int(number)
    return Caps(**values)


class _Counting:
    """The gateway of this process, its tasks, and what is said of them at the end."""

    def __init__(self, names: Sequence[str], caps: Caps, *, port: int = 0, binds: bool = False) -> None:
        from pytest_fanout.meter import Meter

        self._meter = Meter(mode="live", measure=MeasureRules(), cap_warning=self._warn, environ=dict(os.environ))
        self._caps = caps
        self._masker = Masker(dict(os.environ))
        self.gateway = self._meter.gateway(port)
        if binds:
            self.gateway.bind_keys(os.environ)
        self.scopes: list[TaskScope] = [self._meter.open_task(_AGENT, name, 1, caps, beside=True) for name in names]

    def environ(self, scope: TaskScope, *, proxy: bool) -> dict[str, str]:
        return self.gateway.environ_for(scope, os.environ, proxy=proxy)

    def finish(self, report: Path | None, command: Sequence[str], exit_code: int | None) -> None:
        """Close the tasks, say what was counted, write the report."""
        from pytest_fanout.meter.outcome import live_run
        from pytest_fanout.report import gateway as report_of

        runs = []
        for scope in self.scopes:
            self.gateway.close_scope(scope)
            runs.append(live_run(scope, self._meter.close_task(scope)))
        facts = self._meter.finish()
        self.gateway.stop()
        runs, facts = self._masker.record(runs), self._masker.record(facts)
        facts = replace(facts, problems=(*facts.problems, *self._masker.take()))
        click.echo(report_of.text(runs, facts.problems, self._caps), err=True)
        if report is None:
            return
        from pytest_fanout.store.files import canonical, write_atomically

        document = report_of.document(
            runs,
            facts.problems,
            command=os.path.basename(command[0]),  # its arguments may hold anything
            exit_code=exit_code,
            late=facts.late,
            unattributed=facts.unattributed,
            version=importlib.metadata.version("pytest-fanout"),
        )
        write_atomically(report, canonical(document) + b"\n")

    def _warn(self, task: str, cap: str, share: float) -> None:
        click.echo(f"fanout-gateway: {escape(task)} has used {share * 100:.0f} % of its cap {cap}", err=True)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those that both ways to use it have."""
    for option in (
        click.option("--cap", "caps", multiple=True, metavar="NAME=N", help="A hard limit; repeatable."),
        click.option(
            "--report", type=click.Path(path_type=Path), metavar="PATH", help="Write what was counted as JSON."
        ),
        click.option("--proxy", is_flag=True, help="Be the forward proxy as well, so that tools are seen."),
        click.option("--bind-keys", "binds", is_flag=True, help="Send a key to its own provider only: untrusted code."),
    ):
        command = option(command)
    return command


@click.command(
    "fanout-gateway",
    context_settings={"allow_interspersed_args": False},
    epilog="fanout-gateway serve keeps a gateway up: see fanout-gateway serve --help.",
)
@_options
@click.option("--task", "name", default="command", show_default=True, metavar="NAME", help="How the report calls it.")
@click.version_option(package_name="pytest-fanout")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(caps: Sequence[str], report: Path | None, proxy: bool, binds: bool, name: str, command: Sequence[str]) -> None:
    """Run COMMAND with its model calls counted: fanout-gateway -- python agent.py

    Its output is its own; what was counted is said on stderr. A command that goes on after a cap is ended. Exits with
    the command's code (128 + n for signal n), with 127 or 126 when it cannot be run, and with 2 for words of its own
    that cannot be acted on.
    """
    bounds = parse_caps(caps)
    if os.environ.get(_VARIABLE):
        _exec(command, join_outer(os.environ[_VARIABLE], os.environ, ignored=bool(caps or report or proxy or binds)))
    counting = _Counting([name], bounds, binds=binds)
    (scope,) = counting.scopes
    try:
        child = Child(command, counting.environ(scope, proxy=proxy))
    except OSError as error:
        counting.gateway.stop()
        _not_run(command, error)
    code = child.wait(scope)
    counting.finish(report, command, code)
    sys.exit(code)


@click.command("serve")
@_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="On 127.0.0.1; 0: any that is free."
)
@click.option("--task", "names", multiple=True, metavar="NAME", help="A task with a key of its own; repeatable.")
def serve(caps: Sequence[str], report: Path | None, proxy: bool, binds: bool, port: int, names: Sequence[str]) -> None:
    """Keep a gateway up until Ctrl-C or SIGTERM, and say then what was counted.

    It prints the variables that an agent needs, as shell lines; with several --task, for each of them.
    """
    tasks = list(dict.fromkeys(names)) or ["serve"]
    counting = _Counting(tasks, parse_caps(caps), port=port, binds=binds)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    for scope in counting.scopes:
        if len(tasks) > 1:
            click.echo(f"# task {escape(scope.task)}")
        for line in _exports(os.environ, counting.environ(scope, proxy=proxy)):
            click.echo(line)
    sys.stdout.flush()
    click.echo(f"fanout-gateway: listening on {counting.gateway.url}; Ctrl-C ends it", err=True)
    while not over.wait(3600):
        continue
    counting.finish(report, ("serve",), 0)


def _exports(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Shell lines of what the gateway sets. Of the keys those that stand for a real one, else the commonest."""
    import shlex

    changed = {name: value for name, value in after.items() if before.get(name) != value}
    keys = {name for name, value in changed.items() if value.startswith("fanout-sealed-")}
    wanted = {name for name in keys if before.get(name)} or {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
    shown = sorted(name for name in changed if name not in keys or name in wanted)
    return [f"export {name}={shlex.quote(changed[name])}" for name in shown]


def _exec(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except OSError as error:
        _not_run(command, error)


def _not_run(command: Sequence[str], error: OSError) -> NoReturn:
    click.echo(f"fanout-gateway: {escape(command[0])} cannot be run: {error.strerror}", err=True)
    sys.exit(_EXIT_NO_COMMAND if isinstance(error, FileNotFoundError) else _EXIT_NOT_RUNNABLE)


def main() -> None:
    """The console script."""
    words = sys.argv[1:]
    try:
        if words[:1] == ["serve"]:
            serve(words[1:], prog_name="fanout-gateway serve")
        else:
            run(words, prog_name="fanout-gateway")
    except FanoutError as error:
        click.echo("error: " + "\n".join(map(escape, str(error).split("\n"))), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
