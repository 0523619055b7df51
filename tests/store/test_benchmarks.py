"""Results of load tests as their tools write them: every variant that is known, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import MeasuredLoad, ServerState
from pytest_fanout.store.benchmarks import read_benchmark

#: One run of the published sweep of MiniMax-M2.5 (InferenceX) in the keys of `vllm bench serve`.
VLLM: dict[str, Any] = {
    "max_concurrency": 4, "request_rate": "inf", "model_id": "MiniMax-M2.5", "num_prompts": 40, "completed": 40,
    "duration": 158.287, "total_input_tokens": 40_960, "total_output_tokens": 40_960, "request_throughput": 0.252705,
    "output_throughput": 258.770, "mean_ttft_ms": 117.13, "p99.9_ttft_ms": 180.0, "mean_tpot_ms": 15.3406,
    "mean_itl_ms": 15.3406, "mean_e2el_ms": 15_810.6,
}  # fmt: skip


def read(document: Any, where: str = "run.json") -> list[MeasuredLoad]:
    found = read_benchmark(json.dumps(document).encode(), where)
    assert all(isinstance(each, MeasuredLoad) for each in found)
    return [each for each in found if isinstance(each, MeasuredLoad)]


def test_vllm_bench_serve():
    """Four requests in flight: 1,024 tokens each way, 15.34 ms a token, 15.8 s a request."""
    (load,) = read(VLLM)

    assert (load.tool, load.concurrency, load.pinned, load.completed) == ("vllm bench serve", 4.0, True, 40)
    assert (load.input_tokens, load.output_tokens) == (1_024.0, 1_024.0)
    assert (load.requests_per_s, load.output_tokens_per_s) == (0.252705, 258.770)
    assert (load.residency_ms, load.itl_ms, load.ttft_ms) == (15_810.6, 15.3406, 117.13)
    assert (load.model, load.failed, load.hardware) == ("MiniMax-M2.5", None, None)


def test_without_e2el_residency_is_the_first_token_and_all_later_ones():
    """117.13 + 1,023 x 15.3406 = 15,810.56 ms; where latencies were saved in detail, their mean of 15.5 s."""
    bare = {key: value for key, value in VLLM.items() if key != "mean_e2el_ms"}

    (load,) = read(bare)
    (detailed,) = read({**bare, "latencies": [15.0, 16.0]})

    assert load.residency_ms == pytest.approx(15_810.56, abs=0.01)
    assert detailed.residency_ms == 15_500.0


def test_older_vllm_files():
    """A key with a colon, none of failed requests, none of a limit: not pinned. Without itl tpot stands in."""
    old = {**VLLM, "request_goodput:": 0.2}
    del old["mean_itl_ms"], old["max_concurrency"]

    (load,) = read(old)

    assert (load.itl_ms, load.concurrency, load.pinned) == (15.3406, None, False)


def test_a_finite_rate_is_not_pinned():
    """Requests that come at a rate need not fill the places that they are limited to."""
    assert [load.pinned for load in read({**VLLM, "request_rate": 2.0})] == [False]
    assert [load.pinned for load in read({**VLLM, "max_concurrency": None})] == [False]


def test_appended_results_are_one_load_each():
    """`--append-result` writes one object after the other; each has its place in the messages."""
    text = json.dumps(VLLM) + "\n" + json.dumps({**VLLM, "max_concurrency": 8, "failed": 3, "gpu": "H200"}) + "\n"

    one, two = read_benchmark(text.encode(), "all.json")

    assert isinstance(one, MeasuredLoad)
    assert isinstance(two, MeasuredLoad)
    assert (one.source, two.source) == ("all.json#1", "all.json#2")
    assert (two.concurrency, two.failed, two.hardware) == (8.0, 3, "gpu H200")


def guidellm(strategy: dict[str, Any], version: int = 2) -> dict[str, Any]:
    """As GuideLLM 0.5 to 0.8 write it, means alone; figures of a real run of gpt-oss-20b."""

    def means(**values: float) -> dict[str, Any]:
        return {name: {"successful": {"mean": value}} for name, value in values.items()}

    metrics: dict[str, Any] = means(
        requests_per_second=0.033333, request_concurrency=0.99996, request_latency=30.644, prompt_token_count=92.72,
        output_token_count=1_024.0, output_tokens_per_second=34.13, time_to_first_token_ms=61.0,
        inter_token_latency_ms=29.9,
    )  # fmt: skip
    metrics["request_totals"] = {"successful": 25, "errored": 1, "incomplete": 0, "total": 26}
    config = {"strategy": strategy, "backend": {"model": "openai/gpt-oss-20b"}}
    return {"metadata": {"version": version}, "benchmarks": [{"config": config, "metrics": metrics}]}


def test_guidellm():
    """One request after the other is one in flight; seconds become milliseconds; errors are counted."""
    (load,) = read(guidellm({"type_": "synchronous", "max_concurrency": 1}, version=1))

    assert (load.tool, load.source) == ("GuideLLM", "run.json benchmark 1")
    assert (load.concurrency, load.pinned, load.completed, load.failed) == (1.0, True, 25, 1)
    assert (load.residency_ms, load.itl_ms, load.ttft_ms) == (30_644.0, 29.9, 61.0)
    assert load.model == "openai/gpt-oss-20b"


def test_guidellm_streams_and_rates():
    """A concurrent strategy names its streams; of a rate the measured concurrency counts."""
    (streams,) = read(guidellm({"type_": "concurrent", "streams": 32, "max_concurrency": 64}))
    (rate,) = read(guidellm({"type_": "constant", "rate": 2.0}))

    assert (streams.concurrency, streams.pinned) == (32.0, True)
    assert (rate.concurrency, rate.pinned) == (0.99996, True)


def aiperf(input_config: dict[str, Any]) -> dict[str, Any]:
    """As AIPerf 0.10 writes it; figures of a real run of 16 requests in flight."""
    values = {
        "request_throughput": 5.232, "request_latency": 2_695.12, "request_count": 96.0, "time_to_first_token": 119.13,
        "inter_token_latency": 13.05, "output_token_throughput": 1_040.14, "output_sequence_length": 198.80,
        "input_sequence_length": 367.28,
    }  # fmt: skip
    return {
        "schema_version": "1.3",
        **{name: {"unit": "-", "avg": value} for name, value in values.items()},
        "input_config": input_config,
        "error_summary": [{"count": 2}],
    }


@pytest.mark.parametrize(
    "config",
    [
        {
            "models": {"items": [{"name": "qwen"}]},
            "phases": [
                {"name": "warmup", "exclude_from_results": True, "concurrency": 4},
                {"name": "profiling", "concurrency": 16},
            ],
        },
        {"endpoint": {"model_names": ["qwen"]}, "loadgen": {"concurrency": 16}},
        {"model_names": ["qwen"], "perf_analyzer": {"stimulus": {"concurrency": 16}}},
    ],
    ids=["phases", "loadgen", "genai-perf"],
)
def test_aiperf(config: dict[str, Any]):
    """Each release keeps concurrency and model somewhere else."""
    (load,) = read(aiperf(config))

    assert (load.concurrency, load.pinned, load.model) == (16.0, True, "qwen")
    assert (load.completed, load.failed, load.residency_ms) == (96, 2, 2_695.12)


SCRAPE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 30.0
vllm:num_requests_running{engine="1",model_name="m"} 28.0
vllm:num_requests_waiting{engine="0",model_name="m"} 6.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250.0
"""


def test_metrics_of_vllm():
    """Two engines: 58 requests run, 6 wait; the KV share is their mean, and a quarter of the input was cached."""
    (state,) = read_benchmark(SCRAPE.encode(), "metrics.txt")

    assert state == ServerState("metrics.txt", 58.0, 6.0, pytest.approx(0.6), 0.25, "m")


def test_older_metrics_of_vllm():
    """The KV share had another name, and counters no ending."""
    text = SCRAPE.replace("vllm:kv_cache", "vllm:gpu_cache").replace("vllm:prefix_cache_", "vllm:gpu_prefix_cache_")

    (state,) = read_benchmark(text.replace("_total{", "{").encode(), "metrics.txt")

    assert isinstance(state, ServerState)
    assert (state.kv_share, state.prefix_hit_share) == (pytest.approx(0.6), 0.25)


@pytest.mark.parametrize(
    ("data", "where", "what"),
    [
        (b"", "f", "is empty"),
        (b"\xff", "f", "is not UTF-8 text"),
        (b'{"a": 1}\nnonsense', "f:2", "is neither JSON nor the text of vLLM's /metrics"),
        (b'{"a": 1}', "f", "is no result of `vllm bench serve`, GuideLLM or AIPerf that this version knows"),
        (json.dumps({**VLLM, "completed": 0}).encode(), "f", "completed no request"),
        (json.dumps({**VLLM, "total_output_tokens": -1}).encode(), "f", "lacks total_output_tokens"),
        (json.dumps({**VLLM, "output_throughput": float("nan")}).encode(), "f", "lacks output_throughput"),
        (b'{"metadata": {}, "benchmarks": [1]}', "f benchmark 1", "is no benchmark of GuideLLM"),
    ],
    ids=["empty", "bytes", "text", "other-json", "nothing-done", "negative", "nan", "guidellm"],
)
def test_what_is_no_benchmark(data: bytes, where: str, what: str):
    """bad-benchmark: the file, what is wrong with it, and what can be given."""
    with pytest.raises(ConfigError) as caught:
        read_benchmark(data, "f")

    assert str(caught.value) == (
        f"{where}: {what}\n"
        "  mend: give results of `vllm bench serve --save-result`, GuideLLM's benchmarks.json, AIPerf's "
        "profile_export_aiperf.json, or a saved /metrics of vLLM\n"
        "  see: docs/messages.md#bad-benchmark"
    )


def test_a_figure_that_cannot_be_is_not_known():
    """1e308 requests are a slip of somebody's script, and two of them would be no number at all."""
    with pytest.raises(ConfigError, match="lacks completed"):
        read({**VLLM, "completed": 1e308})
    state = read_benchmark(
        b"vllm:num_requests_running 8\nvllm:num_requests_waiting -3\n"
        b"vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 1e308\nvllm:prefix_cache_hits_total 1e308\n",
        "metrics",
    )

    assert state == [ServerState("metrics", 8.0, 0.0, None, None, None)]
