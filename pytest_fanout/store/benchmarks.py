"""Results of load tests that others wrote: `vllm bench serve`, GuideLLM, AIPerf (GenAI-Perf), vLLM's /metrics.

The tools change their files from release to release, so a reader takes what it knows by name and leaves the rest; a
figure that is missing, null or NaN is not known, and never 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import MeasuredLoad, ServerState


def read_benchmark(data: bytes, where: str) -> list[MeasuredLoad | ServerState]:
    """What a file measured, in its order.

    Raises:
        ConfigError: none of the formats above, or a run of it lacks what makes it a load; naming ``where``.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(where, "is not UTF-8 text") from None
    if re.search(r"^vllm:num_requests_running[ {]", text, re.MULTILINE):
        return [_metrics(text, where)]
    documents = list(_documents(text, where))
    found: list[MeasuredLoad | ServerState] = []
    for number, document in enumerate(documents, 1):
        at = where if len(documents) == 1 else f"{where}#{number}"
        found += _read(document, at)
    return found


#: Of any figure: what is larger is a slip, and sums of it would be no numbers.
_LARGEST = 1e15


def _documents(text: str, where: str) -> Iterator[Any]:
    """JSON objects one after the other (`--append-result`), or lists of them."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    if not text:
        raise _bad(where, "is empty")
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", 0)) + 1
            raise _bad(f"{where}:{line}", "is neither JSON nor the text of vLLM's /metrics") from None
        yield from document if isinstance(document, list) else (document,)
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1


def _read(document: Any, where: str) -> list[MeasuredLoad]:
    if isinstance(document, dict):
        if "output_throughput" in document and "total_output_tokens" in document:
            return [_of_vllm(document, where)]
        if isinstance(document.get("benchmarks"), list) and isinstance(document.get("metadata"), dict):
            runs = document["benchmarks"]
            return [_of_guidellm(document, run, f"{where} benchmark {n}") for n, run in enumerate(runs, 1)]
        if "output_token_throughput" in document and "request_throughput" in document:
            return [_of_aiperf(document, where)]
    raise _bad(where, "is no result of `vllm bench serve`, GuideLLM or AIPerf that this version knows")


def _of_vllm(run: dict[str, Any], where: str) -> MeasuredLoad:
    completed = _needed(run, "completed", where)
    out_total, in_total = (_needed(run, f"total_{side}_tokens", where) for side in ("output", "input"))
    _some(completed, where)
    written = out_total / completed
    ttft, per_token = _number(run.get("mean_ttft_ms")), _number(run.get("mean_tpot_ms"))
    itl = _number(run.get("mean_itl_ms")) or per_token
    residency = _number(run.get("mean_e2el_ms"))
    latencies = run.get("latencies")
    if residency is None and isinstance(latencies, list) and latencies and all(map(_number, latencies)):
        residency = 1_000 * math.fsum(latencies) / len(latencies)
    if residency is None and ttft is not None and per_token is not None:
        # `e2el` is written only where --percentile-metrics asks for it; it is the first token and all later ones
        residency = ttft + per_token * max(0.0, written - 1)
    rate = run.get("request_rate")
    limit = _number(run.get("max_concurrency"))
    # a finite rate may leave places empty; then the load is what Little's law says, and Little cannot be checked
    pinned = limit is not None and (rate in (None, "inf") or _number(rate) is None)
    failed = _number(run.get("failed"))
    return MeasuredLoad(
        where, "vllm bench serve", limit, pinned, round(completed), in_total / completed, written,
        _needed(run, "request_throughput", where), _needed(run, "output_throughput", where), residency, itl, ttft,
        None if failed is None else round(failed), _text(run.get("model_id")), _hardware(run),
    )  # fmt: skip


#: What people add with `--metadata`, so that results of unlike machines are not mixed up.
_HARDWARE = ("hardware", "accelerator", "gpu", "gpu_type", "tensor_parallel_size", "tp")


def _hardware(run: dict[str, Any]) -> str | None:
    return ", ".join(f"{key} {run[key]}" for key in _HARDWARE if isinstance(run.get(key), str | int)) or None


def _of_guidellm(document: dict[str, Any], run: Any, where: str) -> MeasuredLoad:
    if not isinstance(run, dict):
        raise _bad(where, "is no benchmark of GuideLLM")

    def mean(name: str) -> float | None:
        return _number(_at(run, "metrics", name, "successful", "mean"))

    strategy = _at(run, "config", "strategy") or _at(run, "args", "strategy") or {}
    kind = str(strategy.get("type_", "")) if isinstance(strategy, dict) else ""
    totals = _at(run, "metrics", "request_totals") or _at(run, "scheduler_metrics", "requests_made") or {}
    completed = _number(_at(totals, "successful"))
    given, written = mean("prompt_token_count"), mean("output_token_count")
    rate, throughput = mean("requests_per_second"), mean("output_tokens_per_second")
    if completed is None or given is None or written is None or rate is None:
        raise _bad(where, "lacks request_totals, token counts or requests_per_second of successful requests")
    _some(completed, where)
    pinned = kind in ("concurrent", "synchronous")
    asked = (
        1.0 if kind == "synchronous" else _number(_at(strategy, "streams")) or _number(_at(strategy, "max_concurrency"))
    )
    measured = mean("request_concurrency")
    seconds, failed = mean("request_latency"), _number(_at(totals, "errored"))
    model = _text(_at(run, "config", "backend", "model")) or _text(_at(document, "args", "model"))
    return MeasuredLoad(
        where, "GuideLLM", asked if pinned else measured, pinned or measured is not None, round(completed),
        given, written, rate, throughput if throughput is not None else rate * written,
        None if seconds is None else seconds * 1_000,
        mean("inter_token_latency_ms") or mean("time_per_output_token_ms"), mean("time_to_first_token_ms"),
        None if failed is None else round(failed), model or _text(_at(document, "config", "backend", "model")),
    )  # fmt: skip


def _of_aiperf(run: dict[str, Any], where: str) -> MeasuredLoad:
    def mean(name: str) -> float | None:
        return _number(_at(run, name, "avg"))

    completed, given = mean("request_count"), mean("input_sequence_length")
    written, rate, throughput = (
        mean(name) for name in ("output_sequence_length", "request_throughput", "output_token_throughput")
    )
    if completed is None and rate is not None and mean("benchmark_duration") is not None:
        completed = rate * (mean("benchmark_duration") or 0.0)
    if given is None or written is None or rate is None or throughput is None or completed is None:
        raise _bad(where, "lacks request_count, sequence lengths or throughputs")
    _some(completed, where)
    config = run.get("input_config")
    asked = _aiperf_concurrency(config)
    errors = run.get("error_summary")
    failed = mean("error_request_count")
    if failed is None and isinstance(errors, list):
        failed = math.fsum(_number(_at(entry, "count")) or 0.0 for entry in errors)
    return MeasuredLoad(
        where, "AIPerf", asked if asked is not None else mean("effective_concurrency"),
        asked is not None or mean("effective_concurrency") is not None, round(completed), given, written, rate,
        throughput, mean("request_latency"), mean("inter_token_latency"), mean("time_to_first_token"),
        None if failed is None else round(failed), _aiperf_model(config),
    )  # fmt: skip


def _aiperf_concurrency(config: Any) -> float | None:
    """Where the releases keep it: of the last phase that counts, of the load generator, of GenAI-Perf's stimulus."""
    phases = _at(config, "phases")
    if isinstance(phases, list):
        counted = [phase for phase in phases if isinstance(phase, dict) and not phase.get("exclude_from_results")]
        if counted:
            return _number(counted[-1].get("concurrency"))
    places = (("loadgen", "concurrency"), ("perf_analyzer", "stimulus", "concurrency"), ("concurrency",))
    return next((found for place in places if (found := _number(_at(config, *place))) is not None), None)


def _aiperf_model(config: Any) -> str | None:
    items = _at(config, "models", "items")
    if isinstance(items, list) and items:
        return _text(_at(items[0], "name"))
    names = _at(config, "endpoint", "model_names") or _at(config, "model_names")
    return _text(names[0]) if isinstance(names, list) and names else None


_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")


def _metrics(text: str, where: str) -> ServerState:
    """The text of a scrape; figures of several engines of one server are added up, shares averaged."""
    values: dict[str, list[float]] = {}
    model = None
    for line in text.splitlines():
        found = _SAMPLE.match(line.strip())
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if 0 <= value <= _LARGEST:
            values.setdefault(found["name"].removeprefix("vllm:"), []).append(value)
        named = re.search(r'model_name="([^"]*)"', found["labels"] or "")
        model = model or (named.group(1) if named else None)
    running = values.get("num_requests_running")
    if not running:
        raise _bad(where, "holds no value of vllm:num_requests_running")
    shares = values.get("kv_cache_usage_perc") or values.get("gpu_cache_usage_perc")
    asked = next((values[name] for name in _named("queries") if name in values), None)
    hits = next((values[name] for name in _named("hits") if name in values), None)
    hit_share = math.fsum(hits) / math.fsum(asked) if asked and hits and math.fsum(asked) > 0 else None
    return ServerState(
        where, math.fsum(running), math.fsum(values.get("num_requests_waiting", [0.0])),
        math.fsum(shares) / len(shares) if shares else None, hit_share, model,
    )  # fmt: skip


def _named(what: str) -> tuple[str, ...]:
    names = (f"prefix_cache_{what}", f"gpu_prefix_cache_{what}")
    return tuple(f"{name}{end}" for name in names for end in ("_total", ""))


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number <= _LARGEST else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _needed(run: dict[str, Any], key: str, where: str) -> float:
    value = _number(run.get(key))
    if value is None:
        raise _bad(where, f"lacks {key}")
    return value


def _some(completed: float, where: str) -> None:
    if completed < 1:
        raise _bad(where, "completed no request")


def _bad(where: str, what: str) -> ConfigError:
    return ConfigError(
        "bad-benchmark",
        what,
        where=where,
        mend="give results of `vllm bench serve --save-result`, GuideLLM's benchmarks.json, AIPerf's "
        "profile_export_aiperf.json, or a saved /metrics of vLLM",
    )
