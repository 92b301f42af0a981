"""`python -m bench.layers`: what layers around a model cost when nothing goes wrong, beside the model alone.

    python -m bench.layers [--calls 2000] [--deltas 20000] [--rounds 7] [--limit 1.0]

A model that answers at once is asked through no layer, through those of a model given as text, and through every one.
An answer of many pieces tells what each layer costs a piece, in microseconds: `--limit` is the most that `Timeout` may.
Times are of the processor, so that a busy machine does less harm; each row is the median of rounds in shuffled order,
a ratio the median of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from statistics import median

from treadle import Message, ModelAnswer, ModelRequest, ModelSettings, Text, TextDelta
from treadle.models import Cache, CircuitBreaker, Fallback, Hedge, RateLimit, Retry, Timeout
from treadle.ports import Model

MESSAGE = Message("assistant", (Text("So it is."),))
questions = count()
DELTA = TextDelta("so ")


class Prompt:
    """A model that answers at once, in so many pieces."""

    def __init__(self, name: str, pieces: int) -> None:
        self.name = name
        self.pieces = pieces

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelAnswer]:
        for _ in range(self.pieces):
            yield DELTA
        yield ModelAnswer(MESSAGE)


def every_layer(model: Model) -> Model:
    """Return a model in all layers that are of use for each request; a cache would answer in its place."""
    limited = RateLimit(CircuitBreaker(Timeout(model)), requests_per_minute=1_000_000_000)
    return Fallback([Retry(Hedge(limited, after=10.0)), model])


STACKS: dict[str, Callable[[Model], Model]] = {
    "the model alone": lambda model: model,
    "Timeout": Timeout,
    "Retry": Retry,
    "CircuitBreaker": CircuitBreaker,
    "RateLimit": lambda model: RateLimit(model, requests_per_minute=1_000_000_000),
    "Fallback": lambda model: Fallback([model, model]),
    "Hedge": lambda model: Hedge(model, after=10.0),
    "Cache (never twice)": lambda model: Cache(model, entries=1),
    "Retry(Timeout): text": lambda model: Retry(Timeout(model)),
    "all but Cache": every_layer,
}


async def measured(model: Model, calls: int) -> float:
    """Return microseconds of the processor a call, each heard to its end."""
    requests = [
        ModelRequest((MESSAGE,), f"{next(questions)}", (), "auto", ModelSettings(), "t", "s", 0, 1)
        for _ in range(calls)
    ]
    gc.collect()
    began = time.process_time()
    for request in requests:
        async for _ in model.stream(request):
            pass
    return (time.process_time() - began) / calls * 1e6


async def measure(rounds: int, calls: int, deltas: int) -> dict[str, list[tuple[float, float]]]:
    chance = random.Random(1)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in STACKS}
    short = {name: make(Prompt("bench:short", 0)) for name, make in STACKS.items()}
    long = {name: make(Prompt("bench:long", deltas)) for name, make in STACKS.items()}
    for _ in range(rounds):
        for name in chance.sample(list(STACKS), len(STACKS)):
            per_call = await measured(short[name], calls)
            samples[name].append((per_call, await measured(long[name], 1) / deltas))
    assert len(asyncio.all_tasks()) == 1, "no layer leaves a task behind"
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.layers", description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=1.0, help="microseconds that Timeout may cost a piece")
    arguments = parser.parse_args()
    samples = asyncio.run(measure(arguments.rounds, arguments.calls, arguments.deltas))
    bare = samples["the model alone"]
    print(f"{'layers':22}{'us a call':>12}{'ratio':>8}{'us a piece':>14}{'ratio':>8}{'added':>8}")
    added: dict[str, float] = {}
    for name, values in samples.items():
        call, piece = (median(sample[column] for sample in values) for column in (0, 1))
        ratios = [
            median(own[column] / bare_value[column] for own, bare_value in zip(values, bare, strict=True))
            for column in (0, 1)
        ]
        added[name] = median(own[1] - bare_value[1] for own, bare_value in zip(values, bare, strict=True))
        print(f"{name:22}{call:12.2f}{ratios[0]:8.2f}{piece:14.3f}{ratios[1]:8.2f}{added[name]:8.3f}")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\n{arguments.rounds} rounds; load {load}")
    if added["Timeout"] > arguments.limit:
        sys.exit(f"Timeout costs {added['Timeout']:.3f} us a piece, more than {arguments.limit:g}")


if __name__ == "__main__":
    main()
