"""A collector of spans: a real server that takes OTLP over HTTP, and keeps what it was sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WITHIN_S = 30.0


class Collector:
    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.spans: list[tuple[dict[str, str], Span]] = []  # each with whose it is
        self._news = threading.Condition()
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outside.take(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        batch = ExportTraceServiceRequest.FromString(body)
        with self._news:
            self.raw.append(body)
            for part in batch.resource_spans:
                whose = {one.key: one.value.string_value for one in part.resource.attributes}
                self.spans += [(whose, span) for scope in part.scope_spans for span in scope.spans]
            self._news.notify_all()

    def wait_for(self, count: int) -> dict[str, Span]:
        """Wait for so many spans; return them by the member that sent them, and what each is."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.spans) >= count, WITHIN_S), self.spans
            found = {f"{whose['claudemesh.member']} {span.name}": span for whose, span in self.spans}
            assert len(found) == len(self.spans) == count
            return found


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    serving = threading.Thread(target=collector.server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        serving.join()
        collector.server.server_close()
