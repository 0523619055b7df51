"""``@pytest_fanout.recorded``: results of tools that speak no HTTP are recorded with their trial, and replayed.

Agents import this where they ship, too: outside a measured task it costs one look-up, and nothing else is loaded.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from pytest_fanout.meter.tool_call import ToolCall

F = TypeVar("F", bound=Callable[..., Any])


@overload
def recorded(function: F, /) -> F: ...
@overload
def recorded(
    *,
    ignore: Iterable[str] = ...,
    dump: Callable[[Any], Any] | None = ...,
    load: Callable[[Any], Any] | None = ...,
) -> Callable[[F], F]: ...
def recorded(
    function: Callable[..., Any] | None = None,
    /,
    *,
    ignore: Iterable[str] = (),
    dump: Callable[[Any], Any] | None = None,
    load: Callable[[Any], Any] | None = None,
) -> Any:
    """Record what a function returns or raises with the trial that calls it, and give it back in replay.

    In replay the function does not run. A call with other arguments than recorded makes its task stale. Whatever the
    function sends while it runs, by HTTP too, is part of it; a model must not be called in it.

    Args:
        function: sync or ``async def``, of a module or a class. ``self`` and ``cls`` are not compared.
        ignore: names of arguments that do not tell one call from another, such as a connection.
        dump: what to record of a result: JSON, or the values that docs/recording.md names.
        load: the result made of that again.

    Raises:
        TypeError: it is no function, or one that yields: those have no single result.
    """
    names = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    if function is None:
        return lambda given: _decorated(_Tool(given, names, dump, load))
    return _decorated(_Tool(function, names, dump, load))


class _Tool:
    """A decorated function."""

    def __init__(
        self,
        function: Callable[..., Any],
        ignore: frozenset[str],
        dump: Callable[[Any], Any] | None,
        load: Callable[[Any], Any] | None,
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"@recorded needs a function, not {function!r}; put it below @staticmethod and the like")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"@recorded: {function.__qualname__} yields; have it return a list")
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.dump = dump
        self.load = load
        self._signature = inspect.signature(function)
        unknown = ignore - self._signature.parameters.keys()
        if unknown:
            raise TypeError(f"@recorded: {function.__qualname__} has no argument {', '.join(sorted(unknown))}")
        first = next(iter(self._signature.parameters), "")
        is_method = first in ("self", "cls") and "." in function.__qualname__
        self._left_out = ignore | ({first} if is_method else frozenset())

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolCall | None:
        """How to deal with a call; None: the function simply runs."""
        api = sys.modules.get("pytest_fanout.session.api")
        meter = None if api is None else api.active()
        if meter is None or not meter.records_tools():
            return None
        from pytest_fanout.session.values import Unrecordable, to_json

        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the function itself says best what is wrong with the call
        bound.apply_defaults()
        arguments = {}
        try:
            for name, value in bound.arguments.items():
                if name not in self._left_out:
                    arguments[name] = to_json(value, name)
        except Unrecordable as error:
            call = meter.begin_tool(self.name, {"unrecordable": str(error)})
            if call is not None:
                self.complain(call, f"argument {error}", f'@pytest_fanout.recorded(ignore=("{name}",))')
            return call  # type: ignore[no-any-return]
        return meter.begin_tool(self.name, arguments)  # type: ignore[no-any-return]

    def replay(self, call: ToolCall) -> Any:
        """Return, or raise, what was recorded."""
        import json

        from pytest_fanout.errors import FanoutError
        from pytest_fanout.session.values import from_json

        try:
            told = json.loads(call.answer())
        except LookupError as error:
            raise FanoutError("request-not-recorded", str(error)) from None
        except TimeoutError:
            raise FanoutError(
                "request-not-recorded",
                f"{self.name} had not ended when the recorded task did",
                mend="record the task anew: pytest --fanout-budget --fanout-mode=record",
            ) from None
        try:
            if "raised" in told:
                result: Any = from_json(told["raised"])
            else:
                result = from_json(told["returned"])
                result = result if self.load is None else self.load(result)
        except ValueError as error:
            text = f"{self.name}: the recorded result cannot be read: {error}"
            call.scope.add_problem(
                "unreadable-result", f"{text}\n  mend: record it anew: pytest --fanout-budget --fanout-mode=record"
            )
            raise FanoutError("unreadable-result", text) from None
        if "raised" in told:
            raise result
        return result

    def returned(self, call: ToolCall, result: Any) -> None:
        from pytest_fanout.session.values import Unrecordable, to_json

        try:
            document = to_json(result if self.dump is None else self.dump(result), "the result")
        except Unrecordable as error:
            call.lost()
            self.complain(call, str(error), "give @pytest_fanout.recorded a dump= and a load= for it")
        else:
            call.came_to({"returned": document})

    def raised(self, call: ToolCall, error: Exception) -> None:
        from pytest_fanout.session.values import Unrecordable, error_to_json

        try:
            document = error_to_json(error)
        except Unrecordable as why:
            call.lost()
            self.complain(call, f"what it raised: {why}", "have the tool raise an exception of a module's own level")
        else:
            call.came_to({"raised": document})

    def complain(self, call: ToolCall, what: str, mend: str) -> None:
        call.scope.add_problem("unrecordable-value", f"{self.name} cannot be recorded: {what}\n  mend: {mend}")


def _decorated(tool: _Tool) -> Any:
    function = tool.function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            call = tool.begin(args, kwargs)
            if call is None:
                return await function(*args, **kwargs)
            if not call.runs:
                if call.was_cancelled:
                    import asyncio

                    await asyncio.Event().wait()
                return tool.replay(call)
            with call:
                try:
                    result = await function(*args, **kwargs)
                except Exception as error:
                    tool.raised(call, error)
                    raise
            tool.returned(call, result)
            return result

        return call_async

    @functools.wraps(function)
    def call_sync(*args: Any, **kwargs: Any) -> Any:
        call = tool.begin(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        if not call.runs:
            return tool.replay(call)
        with call:
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                tool.raised(call, error)
                raise
        tool.returned(call, result)
        return result

    return call_sync
