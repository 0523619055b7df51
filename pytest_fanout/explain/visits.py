"""From the turns of a trial to its visits: what each model call said, what it goes on with, and what it cost.

Kinds, the first that fits:
repeated   the same request (URL and body) as that of the call directly before it
again      the same request was made before in this trial, and others since
reasked    it sends an answer back, and what it adds says that the answer was no good
turn       it goes on with the conversation of an earlier call
begun      anything else: a conversation of its own
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pytest_fanout.records import Attempt, HttpRequest, ModelCall, Turn, Visit, VisitedTrial
from pytest_fanout.wire.settings import settings_of
from pytest_fanout.wire.transcript import Message, read_prompt, read_said

#: The bucket of the agent's own calls.
_AGENT = "agent"
_ASSISTANT = frozenset({"assistant", "model", "chatbot", "ai", "function_call", "reasoning", "custom_tool_call"})
_RESULTS = frozenset({"tool", "function", "function_call_output", "custom_tool_call_output"})
_RESULT_KEY = re.compile(r'"(?:tool_result|toolResult|functionResponse|function_response)"')
#: How code tells a model that its answer could not be used.
_REJECTED = re.compile(
    r"\b(?:invalid|malformed|not (?:valid|a |an |in the )|no valid|could not|cannot be|can't be|unable to|failed to"
    r"|pars(?:e|ing|ed)|try again|once more|fix (?:the|your|these)|errors?|exception|schema|validation|expected"
    r"|wrong format|did not (?:match|follow|call)|must be)\b",
    re.IGNORECASE,
)
_TELLING = 24  # characters
_REJECTED_RESULT = re.compile(r"validation error|fix the errors|invalid (?:json|arguments)", re.IGNORECASE)


@dataclass(slots=True)
class _Seen:
    """What a trial has said so far."""

    requests: set[str] = field(default_factory=set)
    visits: list[Visit] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)  # texts, by visit
    ids: dict[str, int] = field(default_factory=dict)  # response id -> visit
    tools: dict[str, str] = field(default_factory=dict)  # id of a tool call -> name
    asked_by: dict[str, int] = field(default_factory=dict)  # id of a tool call -> visit
    results: list[tuple[str, ...]] = field(default_factory=list)  # carried, by visit
    calls: list[bool] = field(default_factory=list)  # whether the answer asks for tools, by visit


def visited_trial(
    task: str,
    trial: int,
    turns: Iterable[Turn],
    intern: Callable[[str], str] = str,
    *,
    timed: bool = True,
    version: str | None = None,
) -> VisitedTrial:
    """The agent's model calls of a trial.

    Args:
        turns: in order of sending; requests that are no model calls, and calls of another bucket, are passed over.
        intern: gives one object for equal texts; the same prompts stand in thousands of requests.
        timed: whether the recorded times mean anything.
        version: of pytest-fanout, that recorded it.
    """
    seen, refused = _Seen(), 0
    for turn in turns:
        if is_visit(turn):
            _add(turn, seen, intern)
        elif turn.exchanges[0].bucket == _AGENT:
            refused += len(turn.attempts)
    return VisitedTrial(task, trial, tuple(seen.visits), timed, refused, version)


def is_visit(turn: Turn) -> bool:
    """Whether it is a call of the agent that a model has answered."""
    if not turn.attempts or turn.exchanges[0].bucket != _AGENT:
        return False
    return ModelCall(turn.attempts).reached_model


def _add(turn: Turn, seen: _Seen, intern: Callable[[str], str]) -> None:
    exchange, attempt = turn.exchanges[-1], turn.attempts[-1]
    request = exchange.request
    prompt = read_prompt(request.body)
    turns = tuple((role_of(message), intern("\n".join(message.texts))) for message in prompt.messages)
    digest = hashlib.sha256(f"{request.url}\n".encode("utf-8", "surrogatepass") + request.body).hexdigest()
    system = intern("\n".join(prompt.system))
    follows = _followed(system, turns, attempt, seen)
    fresh = _fresh(attempt, follows, seen)
    visit = Visit(
        api=attempt.api,
        model=attempt.model_requested or attempt.model_served,
        system=system,
        turns=turns,
        tools=tuple((intern(name), intern(text)) for name, text in prompt.tools),
        settings=tuple((intern(name), intern(value)) for name, value in settings_of(request.body)),
        request=digest,
        kind=_kind(digest, turns, follows, fresh, seen),
        name=exchange.site,
        sdk=_sdk(request),
        served=attempt.model_served,
        after=tuple(sorted({seen.tools.get(key, key) for key in fresh})),
        follows=follows,
        has_server_state=attempt.parent_id is not None,
        attempts=len(turn.attempts),
        input_tokens=attempt.input_tokens,
        cached_input_tokens=attempt.cached_input_tokens,
        output_tokens=attempt.output_tokens,
        reasoning_tokens=attempt.reasoning_tokens,
        retry_tokens=_tokens_before(turn.attempts),
        started_ms=turn.attempts[0].started_ms or 0,
        ended_ms=attempt.ended_ms or 0,
    )
    answer = exchange.answer
    said = read_said(attempt.api, answer.headers, answer.body)
    number = len(seen.visits)
    seen.visits.append(visit)
    seen.requests.add(digest)
    seen.answers.append(said.text)
    seen.results.append(attempt.tool_results_in)
    seen.calls.append(bool(attempt.tool_calls))
    if attempt.response_id:
        seen.ids[attempt.response_id] = number
    for call in attempt.tool_calls:
        if call.id:
            seen.tools[call.id] = call.name
            seen.asked_by[call.id] = number


def role_of(message: Message) -> str:
    """``assistant`` for what a model has said, ``result`` for what a tool has, ``user`` for the rest."""
    if message.role in _ASSISTANT:
        return "assistant"
    if message.role in _RESULTS or _RESULT_KEY.search(message.key):
        return "result"
    return "user"


def _followed(system: str, turns: tuple[tuple[str, str], ...], attempt: Attempt, seen: _Seen) -> int | None:
    """The latest earlier call whose conversation this one goes on with."""
    if attempt.parent_id in seen.ids:
        return seen.ids[str(attempt.parent_id)]
    # of a conversation that was answered after its tools, that answer is the later call
    asked = max((seen.asked_by[key] for key in attempt.tool_results_in if key in seen.asked_by), default=None)
    if not any(role == "assistant" for role, _ in turns):
        return asked
    # a short answer may stand in a worked example as well
    said = {text for role, text in turns if role == "assistant" and len(text) >= _TELLING}
    for number in range(len(seen.visits) - 1, -1 if asked is None else asked, -1):
        before = seen.visits[number]
        if before.system != system:
            continue
        longer = len(turns) > len(before.turns) and turns[: len(before.turns)] == before.turns
        if longer and turns[len(before.turns)][0] == "assistant":
            return number
        if seen.answers[number] in said:  # a context that was cut at its start
            return number
    return asked


def _fresh(attempt: Attempt, follows: int | None, seen: _Seen) -> tuple[str, ...]:
    """The results that the call before did not carry."""
    old = set(seen.results[follows]) if follows is not None else set()
    known = {key for results in seen.results for key in results} if follows is None else old
    return tuple(key for key in attempt.tool_results_in if key not in known)


def _kind(
    digest: str, turns: Sequence[tuple[str, str]], follows: int | None, fresh: tuple[str, ...], seen: _Seen
) -> str:
    if digest in seen.requests:
        return "repeated" if seen.visits[-1].request == digest else "again"
    if follows is None:
        return "begun"
    added = _added(turns)
    if fresh:
        return "reasked" if any(_REJECTED_RESULT.search(text) for _, text in added) else "turn"
    is_rejection = not seen.calls[follows] and any(role == "user" and _REJECTED.search(text) for role, text in added)
    return "reasked" if is_rejection else "turn"


def _added(turns: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """What stands behind the last answer that is sent back."""
    last = max((at for at, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    return turns[last + 1 :]


def _tokens_before(attempts: Sequence[Attempt]) -> int | None:
    total = 0
    for attempt in attempts[:-1]:
        if attempt.usage_source == "none":
            continue
        if attempt.total_tokens is None:
            return None
        total += attempt.total_tokens
    return total


def _sdk(request: HttpRequest) -> str | None:
    return next((value for name, value in request.headers if name == "user-agent"), None)
