"""What all workers of a live run share: how much has been spent, and whose call may go now.

One SQLite file in a folder of the run's own: each step is one transaction, so that no two workers take the same place,
and a worker that is killed in the middle leaves it whole. Times are unix seconds, the one clock that processes share.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_fanout.errors import StorageError
from pytest_fanout.session.flow.limits import Pace, SpendLimit

#: How long a call waits at most for the end of others when its own task holds one of them: it may wait for itself.
PATIENCE_S: Final = 120.0
#: Longest pause that a provider may ask for; a client that is told to wait longer gives up or asks again by itself.
LONGEST_HOLD_S: Final = 60.0
FILE: Final = "allowance.sqlite"
_EXACT_S: Final = 1e-3
_LOOK_AGAIN_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.25  # so that a stopped task is not kept waiting
_THROTTLED: Final = frozenset({429, 529})
_TABLES: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE spent (calls INTEGER, tokens INTEGER, excess INTEGER, refused INTEGER, cut INTEGER, unbegun INTEGER);
INSERT INTO spent VALUES (0, 0, 0, 0, 0, 0);
CREATE TABLE pace (agent TEXT PRIMARY KEY, next_request REAL DEFAULT 0, next_token REAL DEFAULT 0,
    held_until REAL DEFAULT 0, parallel REAL, slowed_at REAL DEFAULT 0, throttled INTEGER DEFAULT 0,
    waited REAL DEFAULT 0);
CREATE TABLE flying (worker TEXT, agent TEXT, calls INTEGER, PRIMARY KEY (worker, agent));
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Where a run stands. Counts of calls that reached a model or are under way; tokens of the latter are estimated."""

    calls: int
    tokens: int
    refused: bool  # a call was refused: nothing live begins any more
    cut: int  # trials that were stopped by that
    unbegun: int  # trials that were not begun because of it


@dataclass(frozen=True, slots=True)
class Slowed:
    """How the calls of one class were held back. ``throttled``: answers 429 or 529; ``waited_s``: sum over calls."""

    agent: str
    throttled: int
    waited_s: float


def create(folder: Path) -> Path:
    """Make the file that the workers of this run share.

    Raises:
        StorageError: the temporary folder takes no file.
    """
    path = folder / FILE
    try:
        with closing(sqlite3.connect(path)) as db:
            db.executescript(_TABLES)
    except sqlite3.Error as error:
        raise StorageError(
            "cannot-write",
            f"could not be written: {error}",
            where=str(path),
            mend="free space in the folder for temporary files (TMPDIR), then run the same command again",
        ) from None
    return path


@dataclass(eq=False)
class _Turn:
    """One call's place."""

    allowance: Allowance
    agent: str
    reserved: int  # tokens
    estimated: int  # of them, its request's
    at: float  # not to go before
    asked_at: float
    flies_since: int | None = None  # the number of the trial in which it went
    went_at: float = 0.0

    def wait_s(self) -> float:
        return self.allowance.may_go(self)

    def over(self, tokens: int | None, *, reached: bool, status: int | None, retry_after_s: float | None) -> None:
        throttled = status in _THROTTLED
        self.allowance.over(self, tokens, reached=reached, throttled=throttled, retry_after_s=retry_after_s or 0.0)


@dataclass(eq=False)
class Allowance:
    """One process's end of it.

    Args:
        path: what ``create`` has made.
        worker: a name that no other process of the run has.
        clock: unix seconds.
    """

    path: Path
    worker: str
    limit: SpendLimit | None = None
    paces: Mapping[str, Pace] = field(default_factory=dict)
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw", uri=True, timeout=60, isolation_level=None, check_same_thread=False
        )
        # What is lost when the machine itself goes down is of no use then.
        self._db.execute("PRAGMA synchronous = OFF")
        self._held: dict[str, int] = {}  # calls in flight of this process, by class
        self._trial = 0
        self._closed = False

    def close(self) -> None:
        """The run is over: nothing more is asked, and what still ends is not booked."""
        with self._lock:
            self._closed = True
            self._db.close()

    @contextmanager
    def _step(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # --- what the meter asks -----------------------------------------------------------------------------------------

    def ask(self, agent: str | None, tokens: int) -> _Turn | None:
        """A place for one call of a class (None: of no task), or None when the run may not spend it."""
        if self._closed:
            return None
        agent, now = agent or "", self.clock()
        pace = self.paces.get(agent, Pace())
        with self._step() as db:
            calls, spent, excess = db.execute("SELECT calls, tokens, excess FROM spent").fetchone()
            reserved = tokens + excess
            if self.limit is not None and not self.limit.allows(calls + 1, spent + reserved):
                db.execute("UPDATE spent SET refused = 1")
                return None
            db.execute("UPDATE spent SET calls = calls + 1, tokens = tokens + ?", (reserved,))
            db.execute("INSERT OR IGNORE INTO pace (agent, parallel) VALUES (?, ?)", (agent, pace.parallel_calls))
            turn = _Turn(self, agent, reserved, tokens, now, now)
            if pace.requests_per_minute or pace.tokens_per_minute:
                self._place(db, turn, pace, now)
        return turn

    def _place(self, db: sqlite3.Connection, turn: _Turn, pace: Pace, now: float) -> None:
        """The moment from which it may go: each rate is spread evenly, with the burst of one second."""
        requests, tokens = db.execute(
            "SELECT next_request, next_token FROM pace WHERE agent = ?", (turn.agent,)
        ).fetchone()
        if pace.requests_per_minute:
            every_s = 60 / pace.requests_per_minute
            requests = max(requests, now)
            turn.at = max(turn.at, requests - max(0.0, 1.0 - every_s))
            requests += every_s
        if pace.tokens_per_minute:
            tokens = max(tokens, now)
            turn.at = max(turn.at, tokens - 1.0)
            tokens += turn.reserved * 60 / pace.tokens_per_minute
        db.execute("UPDATE pace SET next_request = ?, next_token = ? WHERE agent = ?", (requests, tokens, turn.agent))

    def may_go(self, turn: _Turn) -> float:
        """Seconds to wait before this is asked again; 0: it goes now."""
        now = self.clock()
        if turn.at - now > _EXACT_S:
            return min(turn.at - now, _LONGEST_PAUSE_S)
        with self._step() as db:
            held_until, parallel = db.execute(
                "SELECT held_until, parallel FROM pace WHERE agent = ?", (turn.agent,)
            ).fetchone()
            if now < held_until:
                return float(min(held_until - now, _LONGEST_PAUSE_S))
            if parallel is not None:
                (flying,) = db.execute(
                    "SELECT COALESCE(SUM(calls), 0) FROM flying WHERE agent = ?", (turn.agent,)
                ).fetchone()
                waits_for_itself = self._held.get(turn.agent) and now - turn.asked_at > PATIENCE_S
                if flying >= max(1, int(parallel)) and not waits_for_itself:
                    return _LOOK_AGAIN_S
            db.execute("INSERT OR IGNORE INTO flying VALUES (?, ?, 0)", (self.worker, turn.agent))
            db.execute("UPDATE flying SET calls = calls + 1 WHERE worker = ? AND agent = ?", (self.worker, turn.agent))
            if now - turn.asked_at > _LOOK_AGAIN_S / 2:
                db.execute("UPDATE pace SET waited = waited + ? WHERE agent = ?", (now - turn.asked_at, turn.agent))
            self._held[turn.agent] = self._held.get(turn.agent, 0) + 1
        turn.flies_since, turn.went_at = self._trial, now
        return 0.0

    def over(self, turn: _Turn, tokens: int | None, *, reached: bool, throttled: bool, retry_after_s: float) -> None:
        """A call has ended: what it has really cost, and whether the provider asks to slow down."""
        if self._closed:
            return
        now = self.clock()
        if not reached:
            more, calls, excess = -turn.reserved, -1, 0
        elif tokens is None:
            more, calls, excess = 0, 0, 0
        else:
            more, calls, excess = tokens - turn.reserved, 0, max(0, tokens - turn.estimated)
        pace = self.paces.get(turn.agent, Pace())
        with self._step() as db:
            db.execute(
                "UPDATE spent SET calls = calls + ?, tokens = tokens + ?, excess = MAX(excess, ?)",
                (calls, more, excess),
            )
            if pace.tokens_per_minute and more:
                db.execute(
                    "UPDATE pace SET next_token = next_token + ? WHERE agent = ?",
                    (more * 60 / pace.tokens_per_minute, turn.agent),
                )
            if throttled:
                self._slow_down(db, turn, now, min(retry_after_s, LONGEST_HOLD_S))
            else:
                # one more in parallel once as many as are allowed have gone well
                db.execute(
                    "UPDATE pace SET parallel = MIN(parallel + 1 / parallel, ?) WHERE agent = ? AND parallel NOT NULL",
                    (float(pace.parallel_calls or 1_000_000), turn.agent),
                )
            if turn.flies_since == self._trial:
                turn.flies_since = None
                self._held[turn.agent] -= 1
                db.execute(
                    "UPDATE flying SET calls = calls - 1 WHERE worker = ? AND agent = ?", (self.worker, turn.agent)
                )

    def _slow_down(self, db: sqlite3.Connection, turn: _Turn, now: float, hold_s: float) -> None:
        """Half as many in parallel, once for all calls that went before that; and the pause that was asked for."""
        (flying,) = db.execute("SELECT COALESCE(SUM(calls), 0) FROM flying WHERE agent = ?", (turn.agent,)).fetchone()
        db.execute(
            "UPDATE pace SET throttled = throttled + 1, held_until = MAX(held_until, ?),"
            " parallel = CASE WHEN slowed_at <= ? THEN MAX(1, MIN(COALESCE(parallel, ?), ?) / 2.0) ELSE parallel END,"
            " slowed_at = CASE WHEN slowed_at <= ? THEN ? ELSE slowed_at END WHERE agent = ?",
            (now + hold_s, turn.went_at, flying, flying, turn.went_at, now, turn.agent),
        )

    def add(self, tokens: int) -> None:
        """A background run has cost so much more than was known when its call ended."""
        if not self._closed:
            with self._step() as db:
                db.execute("UPDATE spent SET tokens = tokens + ?", (tokens,))

    # --- what the session asks ---------------------------------------------------------------------------------------

    def spent(self) -> Spent:
        with self._step() as db:
            calls, tokens, refused, cut, unbegun = db.execute(
                "SELECT calls, tokens, refused, cut, unbegun FROM spent"
            ).fetchone()
        return Spent(calls, tokens, bool(refused), cut, unbegun)

    def slowed(self) -> tuple[Slowed, ...]:
        """The classes whose calls had to wait, or were told to."""
        with self._step() as db:
            rows = db.execute(
                "SELECT agent, throttled, waited FROM pace WHERE throttled OR waited > 0 ORDER BY agent"
            ).fetchall()
        return tuple(Slowed(*row) for row in rows)

    def may_begin(self) -> bool:
        """Whether a live trial may begin; one that may not is counted."""
        if self.limit is None:
            return True
        with self._step() as db:
            (refused,) = db.execute("SELECT refused FROM spent").fetchone()
            if refused:
                db.execute("UPDATE spent SET unbegun = unbegun + 1")
        return not refused

    def trial_ended(self) -> None:
        """Answers that nobody has read to their end are not waited for."""
        if any(self._held.values()):
            self.forget(self.worker)
        self._held.clear()
        self._trial += 1

    def cut(self) -> None:
        """Count a trial that was stopped in its middle."""
        with self._step() as db:
            db.execute("UPDATE spent SET cut = cut + 1")

    def forget(self, worker: str) -> None:
        """A worker is gone: what it had in flight is not waited for, and stays booked at what was reserved for it."""
        with self._step() as db:
            db.execute("DELETE FROM flying WHERE worker = ? OR worker LIKE ?", (worker, f"{worker}-%"))
