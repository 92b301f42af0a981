"""Circuit breakers: a service that keeps failing gets no requests from this process for a while."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from threading import Lock
from typing import Final, Literal

from treadle.core.data import frozen
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ModelError
from treadle.llm.errors import OF_SERVICE
from treadle.llm.layers.layer import Layer, Shared, close, count, function, no_answer, number, ready_in
from treadle.ports import Model

CircuitState = Literal["closed", "open", "half_open"]

PROBE_CHECK_SECONDS = 1.0
"""The longest time in seconds until a request checks again while all probes are running."""


@frozen(kw_only=True)
class BreakerState:
    """The state of a circuit breaker at one moment.

    Args:
        service: the provider, and the address of its server if it is not the provider's own.
        state: `closed` (requests pass), `open` (none passes), `half_open` (a few pass, as probes).
        failures: how many requests in a row have failed.
        ready_in: seconds until a request can pass; 0 if it can now.
        probes: how many probes are running.
    """

    service: str
    state: CircuitState
    failures: int
    ready_in: float
    probes: int


@explains_arguments
class CircuitBreaker(Layer):
    """A model whose service gets no requests for a while after several failures in a row.

    While the breaker is open, a request fails at once with a `ModelError` of the kind `not_sent`. Its `retry_after` is
    the time until the next probe. Then a few requests pass as probes: one answer closes the breaker, one failure opens
    it again. Only failures of the service count: connections, deadlines and 5xx. A refusal shows that the service
    works. Requests sent before the breaker opened or closed change nothing when they end.

    All breakers of a process with the same arguments around models of one service share one state. It holds for all
    runners, agents, event loops and threads.

    Args:
        model: the model inside.
        failures: how many failures in a row open the breaker; an answer resets the count.
        within: seconds within which these failures have to happen.
        open_for: seconds for which the breaker stays open.
        probes: how many requests may run while the breaker is half open.
        clock: returns the time in seconds; the same for all threads.
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
        self._clock = function("CircuitBreaker", "clock", clock)
        self._shared: Circuit | None = None

    @property
    def state(self) -> CircuitState:
        """Whether requests pass now: `closed`, `open` or `half_open`."""
        return self._circuit().state().state

    def ready_in(self) -> float:
        circuit = self._circuit()
        return max(0.0 if circuit.is_closed else circuit.state().ready_in, ready_in(self.model))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        circuit = self._circuit()
        admission = circuit.admit()
        inner, item = None, None
        try:
            inner = self.model.stream(request)
            async for item in inner:
                yield item
            if type(item) is not ModelAnswer:
                raise no_answer(self.name)
        except ModelError as error:
            if error.kind in OF_SERVICE:
                circuit.record_failure(admission)
            elif error.kind not in ("not_sent", "unknown"):
                circuit.record_answer(admission)
            raise
        finally:
            if type(item) is ModelAnswer:
                circuit.record_answer(admission)
            circuit.release(admission)
            await close(inner)

    def _circuit(self) -> Circuit:
        # Looked up at first use: a provider's address may be set in the environment after the model was made.
        if self._shared is None:
            key = (self.service, self.failures, self.within, self.open_for, self.probes, self._clock)
            self._shared = _circuits.get(key, lambda: Circuit(*key))
        return self._shared


class Admission:
    """A request that may be sent. A probe has a lease, the time until which it counts as running."""

    __slots__ = ("epoch", "lease")

    def __init__(self, epoch: int, lease: float | None = None) -> None:
        self.epoch = epoch
        self.lease = lease


class Circuit:
    """The state that all breakers of one service share. Every method is safe from any thread."""

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
        self._limit, self._within, self._open_for, self._probes = failures, within, open_for, probes
        self._clock = clock
        self._lock = Lock()
        self._failed: deque[float] = deque(maxlen=failures)
        self._open_until: float | None = None
        self._leases: set[Admission] = set()
        self._epoch = 0

    @property
    def is_closed(self) -> bool:
        """Whether all requests pass."""
        return self._open_until is None

    def admit(self) -> Admission:
        """Let a request pass; raises `ModelError` if none may pass."""
        if self.is_closed:  # the usual case needs no lock
            return Admission(self._epoch)
        with self._lock:
            if self.is_closed:
                return Admission(self._epoch)
            now = self._clock()
            wait = self._ready_in(now)
            if wait > 0:
                raise self._refusal(wait)
            # A probe that has not ended by then does not block the next one.
            probe = Admission(self._epoch, now + self._open_for)
            self._leases.add(probe)
            return probe

    def record_answer(self, admission: Admission) -> None:
        """Record that the service answered."""
        if admission.epoch != self._epoch or (self.is_closed and not self._failed):
            return
        with self._lock:
            if admission.epoch != self._epoch:
                return
            self._failed.clear()
            if admission.lease is not None and self._open_until is not None:
                self._switch(None)

    def record_failure(self, admission: Admission) -> None:
        """Record that the service failed."""
        with self._lock:
            if admission.epoch != self._epoch:
                return
            now = self._clock()
            self._failed.append(now)
            if admission.lease is not None or (
                len(self._failed) == self._limit and now - self._failed[0] <= self._within
            ):
                self._switch(now + self._open_for)

    def release(self, admission: Admission) -> None:
        """Release a probe, after success and failure alike."""
        if admission.lease is not None:
            with self._lock:
                self._leases.discard(admission)

    def state(self) -> BreakerState:
        """Return the state of the breaker now."""
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

    def _switch(self, open_until: float | None) -> None:
        """Open or close the circuit; requests admitted before no longer count."""
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
        return min(ends[0] - now, PROBE_CHECK_SECONDS)

    def _refusal(self, wait: float) -> ModelError:
        duration = f"for {wait:.1f} s more" if not self._leases else "until a probe has ended"
        return ModelError(
            f"not sent: {self.service} failed {len(self._failed)} times in a row, and gets no requests {duration}",
            kind="not_sent",
            retry_after=wait,
        )


_circuits: Final = Shared[Circuit]()


def breakers() -> tuple[BreakerState, ...]:
    """Return the state of each circuit breaker that this process has used, by service."""
    return tuple(sorted((circuit.state() for circuit in _circuits.values()), key=lambda state: state.service))
