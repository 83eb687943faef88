"""Metrics for Prometheus, and the middleware that measures every request."""

from __future__ import annotations

import time

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlink import __version__
from fewlink.linker import Linker
from fewlink.server.admission import CALLER, Caller
from fewlink.server.logs import AccessLog
from fewlink.server.service import Service

BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
REFUSALS = frozenset({"busy", "closing", "cost", "cross-site", "deadline", "limit", "too-large", "token", "wrong-host"})
CLIENT_GONE = 499  # status in the log if the client disconnected
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # which double the number of series


class Metrics:
    """The metrics of one app."""

    def __init__(self, linker: Linker, service: Service) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "fewlink_requests", "Requests by path, method and status.", ["path", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "fewlink_request_seconds",
            "Seconds until the response was sent.",
            ["path"],
            buckets=BUCKET_SECONDS,
            registry=registry,
        )
        self.waited = Histogram(
            "fewlink_queue_seconds",
            "Seconds that a request waited for its turns.",
            buckets=BUCKET_SECONDS,
            registry=registry,
        )
        self.refused = Counter("fewlink_refused", "Refused requests by reason.", ["reason"], registry=registry)
        self.open = Gauge("fewlink_open_requests", "Requests being answered.", registry=registry)

        facts = Info("fewlink", "Version, model and graph.", registry=registry)
        facts.info({"version": __version__, "model": linker.scorer.name, "graph": linker.benchmark.name})
        gauges = {
            "fewlink_graph_entities": ("Entities in the graph.", lambda: len(linker.graph.entities)),
            "fewlink_graph_triples": ("Triples in the graph.", lambda: linker.graph.triple_count),
            "fewlink_waiting_requests": ("Admitted requests.", lambda: len(service.admission)),
            "fewlink_waiting_seconds": (
                "Estimated seconds of work of the admitted requests.",
                lambda: service.admission.left,
            ),
            "fewlink_queue_length": ("Questions waiting for the model.", lambda: len(service.batcher)),
        }
        for name, (description, read) in gauges.items():
            Gauge(name, description, registry=registry).set_function(read)

    def response(self) -> Response:
        """All metrics in the text format of Prometheus."""
        content = prometheus_client.generate_latest(self.registry)
        return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)


class ObservingMiddleware:
    """The outermost middleware: measures each request and logs it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: AccessLog | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        caller = Caller((scope.get("client") or ("",))[0])
        began = time.perf_counter()
        status = CLIENT_GONE
        size = 0

        async def observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        token = CALLER.set(caller)
        try:
            with self.metrics.open.track_inprogress():
                await self.app(scope, receive, observed)
        finally:
            CALLER.reset(token)
            seconds = time.perf_counter() - began
            path = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(path, method, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            if caller.waited:
                self.metrics.waited.observe(caller.waited)
            if (reason := scope.get("error_code")) in REFUSALS:
                self.metrics.refused.labels(reason).inc()
            if self.log is not None:
                self.log.write(
                    client=caller.client,
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    seconds=seconds,
                    size=size,
                    waited=caller.waited,
                )
