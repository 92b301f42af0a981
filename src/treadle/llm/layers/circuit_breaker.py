"""Circuit breakers: a service that fails again and again is left alone for a while, by all tasks of the process."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from threading import Lock
from typing import Any, Literal

from treadle.core.data import frozen
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.errors import ConfigurationError, ModelError
from treadle.llm.errors import OF_SERVICE
from treadle.llm.layers.layer import Layer, closed, count, no_answer, number, ready_in
from treadle.ports import Model

CircuitState = Literal["closed", "open", "half_open"]

SOON = 1.0
"""Seconds after which a request that finds all probes under way is worth another look, at most."""

_KEPT = 1_000


@frozen(kw_only=True)
class BreakerState:
    """How a circuit breaker stands at one moment.

    Args:
        service: the provider, and where its server is when it is not the provider's own.
        state: `closed` (requests pass), `open` (none does), `half_open` (a few do, as probes).
        failures: how many requests in a row have failed.
        ready_in: seconds until it takes a request; 0 when it does now.
        probes: how many probes are under way.
    """

    service: str
    state: CircuitState
    failures: int
    ready_in: float
    probes: int


class CircuitBreaker(Layer):
    """A model whose service is left alone for a while when requests to it fail again and again.

    All breakers of a process with the same numbers around models of one service are one, for all runners, agents, event
    loops and threads. While it is open, a request fails at once with a `ModelError` of the kind `not_sent` whose
    `retry_after` says when the next probe may go. Then a few requests pass: one answer closes the breaker, one failure
    opens it again. Only failures that tell of the service count (connections, deadlines, 5xx); a refusal shows that it
    is well. Requests that were sent before the breaker opened or closed change nothing when they end.

    Args:
        model: what is asked.
        failures: how many in a row open the breaker; an answer begins the count anew.
        within: seconds within which they have to come.
        open_for: seconds for which it stays open.
        probes: how many requests may be under way while it is half open.
        clock: tells the time in seconds; the same for all threads.
    """

    numbers = ("failures", "within", "open_for", "probes")

    def __init__(
        self,
        model: Model | str,
        *,
        failures: int = 5,
        within: float = 30.0,
        open_for: float = 15.0,
        probes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self.failures = count("CircuitBreaker", "failures", failures)
        self.within = number("CircuitBreaker", "within", within)
        self.open_for = number("CircuitBreaker", "open_for", open_for)
        self.probes = count("CircuitBreaker", "probes", probes)
        if not callable(clock):
            raise ConfigurationError(f"CircuitBreaker: clock must be a function, got {clock!r}")
        self._clock = clock
        self._found: Circuit | None = None

    @property
    def state(self) -> CircuitState:
        """Whether requests pass now: `closed`, `open` or `half_open`."""
        return self._circuit().look().state

    def ready_in(self) -> float:
        circuit = self._circuit()
        return max(0.0 if circuit.is_closed else circuit.look().ready_in, ready_in(self.model))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        circuit = self._circuit()
        passage = circuit.enter()
        inner, item = None, None
        try:
            inner = self.model.stream(request)
            async for item in inner:
                yield item
            if type(item) is not ModelAnswer:
                raise no_answer(self.name)
        except ModelError as error:
            if error.kind in OF_SERVICE:
                circuit.failed(passage)
            elif error.kind not in ("not_sent", "unknown"):
                circuit.answered(passage)
            raise
        finally:
            if type(item) is ModelAnswer:
                circuit.answered(passage)
            circuit.leave(passage)
            await closed(inner)

    def _circuit(self) -> Circuit:
        # Found at first use: where a provider is may be said in the environment, after the model was made.
        if self._found is None:
            self._found = _circuit(
                self.service, self.failures, self.within, self.open_for, self.probes, self._clock
            )
        return self._found


class Passage:
    """A request that was let through; `lease` is until when, if it is a probe."""

    __slots__ = ("epoch", "lease")

    def __init__(self, epoch: int, lease: float | None = None) -> None:
        self.epoch = epoch
        self.lease = lease


class Circuit:
    """What all breakers of one service share. Every method is safe from any thread."""

    def __init__(
        self,
        service: str,
        failures: int,
        within: float,
        open_for: float,
        probes: int,
        clock: Callable[[], float],
    ) -> None:
        self.service = service
        self._most, self._within, self._open_for, self._probes = failures, within, open_for, probes
        self._clock = clock
        self._lock = Lock()
        self._failed: deque[float] = deque(maxlen=failures)
        self._open_until: float | None = None
        self._leases: set[Passage] = set()
        self._epoch = 0

    @property
    def is_closed(self) -> bool:
        """Whether all requests pass."""
        return self._open_until is None

    def enter(self) -> Passage:
        """Let a request through; raises `ModelError` when none may pass."""
        if self.is_closed:  # what nearly always holds is found without the lock
            return Passage(self._epoch)
        with self._lock:
            if self.is_closed:
                return Passage(self._epoch)
            now = self._clock()
            wait = self._ready_in(now)
            if wait > 0:
                raise self._refusal(wait)
            # A probe that has not ended by then, whatever became of it, does not hold up the next one.
            probe = Passage(self._epoch, now + self._open_for)
            self._leases.add(probe)
            return probe

    def answered(self, passage: Passage) -> None:
        """Note that the service answered: it is well."""
        if passage.epoch != self._epoch or (self.is_closed and not self._failed):
            return
        with self._lock:
            if passage.epoch != self._epoch:
                return
            self._failed.clear()
            if passage.lease is not None and self._open_until is not None:
                self._turn(None)

    def failed(self, passage: Passage) -> None:
        """Note that the service failed."""
        with self._lock:
            if passage.epoch != self._epoch:
                return
            now = self._clock()
            self._failed.append(now)
            if passage.lease is not None or (
                len(self._failed) == self._most and now - self._failed[0] <= self._within
            ):
                self._turn(now + self._open_for)

    def leave(self, passage: Passage) -> None:
        """Give a probe back, however it ended."""
        if passage.lease is not None:
            with self._lock:
                self._leases.discard(passage)

    def look(self) -> BreakerState:
        """Return how the breaker stands now."""
        with self._lock:
            now = self._clock()
            state: CircuitState = "closed"
            if self._open_until is not None:
                state = "open" if now < self._open_until else "half_open"
            return BreakerState(
                service=self.service,
                state=state,
                failures=len(self._failed),
                ready_in=self._ready_in(now),
                probes=len(self._leases),
            )

    def _turn(self, open_until: float | None) -> None:
        """Open or close; whatever was let through before tells of another time from now on."""
        self._open_until = open_until
        self._epoch += 1
        self._leases.clear()

    def _ready_in(self, now: float) -> float:
        if self._open_until is None:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        ends = sorted(probe.lease for probe in self._leases if probe.lease is not None and probe.lease > now)
        if len(ends) < self._probes:
            return 0.0
        return min(ends[0] - now, SOON)

    def _refusal(self, wait: float) -> ModelError:
        now_what = f"for {wait:.1f} s more" if not self._leases else "until a probe has come back"
        return ModelError(
            f"not sent: {self.service} failed {len(self._failed)} times in a row, and is left alone {now_what}",
            kind="not_sent",
            retry_after=wait,
        )


_circuits: OrderedDict[tuple[Any, ...], Circuit] = OrderedDict()
_circuits_lock = Lock()


def _circuit(service: str, *numbers: Any) -> Circuit:
    """Return the one circuit of a service with these numbers."""
    key = (service, *numbers)
    with _circuits_lock:
        if (found := _circuits.get(key)) is None:
            found = _circuits[key] = Circuit(service, *numbers)
            if len(_circuits) > _KEPT:  # breakers that are still used keep theirs
                _circuits.popitem(last=False)
        else:
            _circuits.move_to_end(key)
        return found


def breakers() -> tuple[BreakerState, ...]:
    """Return how each circuit breaker stands that this process has used, by service."""
    with _circuits_lock:
        circuits = list(_circuits.values())
    return tuple(sorted((each.look() for each in circuits), key=lambda state: state.service))
