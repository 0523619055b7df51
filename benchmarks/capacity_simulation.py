"""The law of calls in flight against a discrete-event simulation of agents on batching servers.

    python benchmarks/capacity_simulation.py [--calls 100000] [--rho 0.3 0.5 0.7 0.85 0.9] [--seeds 3]   # needs simpy

Tasks arrive as Poisson. Each is a loop: a call at a random replica, a wait for a tool, the next call. A replica shares
its time between the calls that it holds, each getting a token every t0 + t1 x calls seconds. Work and tool times are
lognormal, calls per task a mixture of geometric laws. The model knows t0, t1, mean work and the rate alone.

Virtual time: the figures are those of the seeds, whatever the machine. What is told: calls on a replica (mean and 99th
percentile of time), time of a task and tasks in flight, each beside the model; and Little's law with the latency of an
idle server, which is what a test run measures.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import simpy

from pytest_fanout.capacity.littles_law import in_flight
from pytest_fanout.capacity.saturation import RHO_MAX, Replica, fleet_in_flight_quantile

T0_S, T1_S = 0.018, 0.0018
WORK_TOKENS, CALLS, TOOL_S, REPLICAS = 700.0, 8.0, 1.5, 2
#: Share of the time that is left out at the start.
WARM = 0.1


@dataclass
class Held:
    """For how long so many were there, and their mean."""

    env: simpy.Environment
    begin: float = 0.0
    count: int = 0
    since: float = 0.0
    seconds: dict[int, float] = field(default_factory=dict)

    def step(self, by: int) -> None:
        now = self.env.now
        if now > self.begin:
            spent = now - max(self.since, self.begin)
            self.seconds[self.count] = self.seconds.get(self.count, 0.0) + spent
        self.since, self.count = now, self.count + by

    def mean(self) -> float:
        return math.fsum(count * spent for count, spent in self.seconds.items()) / math.fsum(self.seconds.values())

    def quantile(self, share: float) -> int:
        left = share * math.fsum(self.seconds.values())
        for count in sorted(self.seconds):
            left -= self.seconds[count]
            if left <= 0:
                return count
        return max(self.seconds)


class Sharing:
    """A replica: its calls share it evenly, so that each ends when the attained work reaches its own."""

    def __init__(self, env: simpy.Environment, begin: float) -> None:
        self.env = env
        self.held = Held(env, begin)
        self.attained = 0.0  # tokens that each call has had since the beginning
        self.at = 0.0
        self.ends: list[tuple[float, int, simpy.Event]] = []
        self.version = 0
        self.number = 0

    def call(self, tokens: float) -> simpy.Event:
        self._advance()
        done = self.env.event()
        self.number += 1
        heapq.heappush(self.ends, (self.attained + tokens, self.number, done))
        self.held.step(+1)
        self._arm()
        return done

    def _advance(self) -> None:
        if self.ends:
            self.attained += (self.env.now - self.at) / (T0_S + T1_S * len(self.ends))
        self.at = self.env.now

    def _arm(self) -> None:
        self.version += 1
        if self.ends:
            wait = max(0.0, self.ends[0][0] - self.attained) * (T0_S + T1_S * len(self.ends))
            armed, timeout = self.version, self.env.timeout(wait)
            timeout.callbacks.append(lambda _: self._end(armed))

    def _end(self, armed: int) -> None:
        if armed != self.version:
            return  # another call came or went since
        self._advance()
        self.attained = max(self.attained, self.ends[0][0])
        _, _, done = heapq.heappop(self.ends)
        self.held.step(-1)
        done.succeed()
        self._arm()


@dataclass(frozen=True)
class Seen:
    """What a simulation showed."""

    in_flight: float
    in_flight_p99: float
    task_s: float
    tasks: float
    tasks_p99: int


def simulate(rho: float, calls: int, seed: int) -> Seen:
    """Agents at a utilisation, until about so many calls are done."""
    luck = random.Random(seed)
    env = simpy.Environment()
    tasks_per_s = rate_of(rho)
    end = calls / (tasks_per_s * CALLS)
    begin = WARM * end
    servers = [Sharing(env, begin) for _ in range(REPLICAS)]
    running = Held(env, begin)
    times: list[float] = []

    def task() -> Iterator[simpy.Event]:
        started = env.now
        running.step(+1)
        for number in range(_calls_of(luck)):
            if number:
                yield env.timeout(luck.lognormvariate(math.log(TOOL_S) - 0.5, 1.0))
            work = luck.lognormvariate(math.log(WORK_TOKENS) - 0.5, 1.0)
            yield luck.choice(servers).call(work)
        running.step(-1)
        if started > begin:
            times.append(env.now - started)

    def arrivals() -> Iterator[simpy.Event]:
        while True:
            yield env.timeout(luck.expovariate(tasks_per_s))
            env.process(task())

    env.process(arrivals())
    env.run(until=end)
    return Seen(
        math.fsum(server.held.mean() for server in servers) / REPLICAS,
        math.fsum(server.held.quantile(0.99) for server in servers) / REPLICAS,
        math.fsum(times) / len(times),
        running.mean(),
        running.quantile(0.99),
    )


def _calls_of(luck: random.Random) -> int:
    """95 % of tasks 6 calls on average, 5 % 46: 8 in all."""
    mean = 46 if luck.random() < 0.05 else 6
    return 1 + math.floor(math.log(1.0 - luck.random()) / math.log(1 - 1 / mean))


def rate_of(rho: float) -> float:
    """Tasks a second that load the replicas so far."""
    return REPLICAS * rho / T1_S / (CALLS * WORK_TOKENS)


def modelled(rho: float) -> Seen:
    """The same figures by the model, where it gives any."""
    replica, tasks_per_s = Replica(T0_S, T1_S), rate_of(rho)
    mean = replica.in_flight(min(rho, RHO_MAX)) if rho <= RHO_MAX else replica.size * rho / (1 - rho)
    call_s = mean / (tasks_per_s * CALLS / REPLICAS)
    task_s = CALLS * call_s + (CALLS - 1) * TOOL_S
    if rho > RHO_MAX:
        return Seen(mean, math.nan, task_s, in_flight(tasks_per_s, task_s), 0)
    tools = tasks_per_s * (CALLS - 1) * TOOL_S
    p99 = replica.in_flight_quantile(rho, 0.99)
    tasks_p99 = fleet_in_flight_quantile(replica, rho, REPLICAS, tools, 0.99)
    return Seen(mean, p99, task_s, in_flight(tasks_per_s, task_s), tasks_p99)


def idle_tasks(rho: float) -> float:
    """Little's law with the latency of a server that does nothing else."""
    return in_flight(rate_of(rho), CALLS * WORK_TOKENS * (T0_S + T1_S) + (CALLS - 1) * TOOL_S)


def averaged(rho: float, calls: int, seeds: int) -> Seen:
    """The mean of so many simulations."""
    found = [simulate(rho, calls, seed) for seed in range(seeds)]

    def mean(name: str) -> float:
        return math.fsum(getattr(each, name) for each in found) / len(found)

    return Seen(*(mean(name) for name in ("in_flight", "in_flight_p99", "task_s", "tasks")), round(mean("tasks_p99")))


def main() -> None:
    """Simulate each utilisation, and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.85, 0.9])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print("| rho | calls on a replica | 99 % | task, s | tasks | 99 % | tasks by idle latency | model: calls | 99 % | "
          "task, s | tasks | 99 % | off: calls | tasks |")  # fmt: skip
    print("|" + "---|" * 14)
    for rho in args.rho:
        seen, model = averaged(rho, args.calls, args.seeds), modelled(rho)
        refused = rho > RHO_MAX
        cells = [
            f"{rho:.2f}", f"{seen.in_flight:.1f}", f"{seen.in_flight_p99:.0f}", f"{seen.task_s:.0f}",
            f"{seen.tasks:.1f}", f"{seen.tasks_p99}", f"{idle_tasks(rho):.1f}", f"{model.in_flight:.1f}",
            "refused" if refused else f"{model.in_flight_p99:.0f}", f"{model.task_s:.0f}", f"{model.tasks:.1f}",
            "refused" if refused else f"{model.tasks_p99}", f"{model.in_flight / seen.in_flight - 1:+.1%}",
            f"{model.tasks / seen.tasks - 1:+.1%}",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
