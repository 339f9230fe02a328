"""What the server counts, as Prometheus reads it: summed over all worker processes."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that tells prometheus_client where workers write what they count."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one worker; `text()` has those of all."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self.requests = Counter(
            "prunus_requests", "Requests answered", ["path", "status"], registry=own
        )
        self.seconds = Histogram(
            "prunus_request_seconds", "Time to answer a request", buckets=_SECONDS, registry=own
        )
        self.images = Histogram(
            "prunus_batch_images", "Images computed together", buckets=_IMAGES, registry=own
        )
        self.inside = Gauge(
            "prunus_inputs",
            "Inputs that wait or are computed",
            multiprocess_mode="livesum",
            registry=own,
        )

    def text(self) -> bytes:
        """In the format of Prometheus."""
        if FOLDER not in os.environ:
            return generate_latest(self._registry)
        everything = CollectorRegistry()
        MultiProcessCollector(everything)  # type: ignore[no-untyped-call]
        return generate_latest(everything)
