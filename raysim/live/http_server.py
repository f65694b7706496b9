"""The server of the page: on loopback only, with the standard library alone."""

import json
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from raysim.live.feed import Seen
from raysim.live.watched import MOST_OVERLAID, SECONDS, Watched
from raysim.system.colors import COLORS, DARK_TEXT, GREY, SEQUENCE, style_page
from raysim.system.errors import ConfigError

LOOPBACK = "127.0.0.1"
PORT = 8090  # unless it is taken or another one is given
MOST_STREAMS = 24
HEARTBEAT = 10.0  # seconds after which a line is sent to a page that has nothing new, to notice that it is gone
PATIENCE = 10.0  # seconds that a request, or one writing to a page, may take
END = 3.0  # seconds in which pages receive the last events
PAGE, STYLE = "page.html", "style.css"
SCRIPTS = (  # one script in this order: later files use names of earlier ones
    "elements.js",
    "figures.js",
    "received.js",
    "charts.js",
    "reading.js",
    "one_run.js",
    "tracks.js",
    "runs.js",
    "page.js",
)
TOKEN = "X-Raysim-Token"  # pages of other sites cannot send a custom header


class LiveServer(ThreadingHTTPServer):
    """A server of one page, which follows a run or a sweep's runs.

    Args:
        watched: what the page shows.
        port: where it listens; None is PORT, or any free one if that is taken.

    Raises:
        ConfigError: the port is taken, or may not be used.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, watched: Watched, port: int | None) -> None:
        self.watched = watched
        self.token = secrets.token_hex(16)
        self.ending = threading.Event()
        self.streams = threading.Semaphore(MOST_STREAMS)
        self.page = read_page()
        try:
            super().__init__((LOOPBACK, PORT if port is None else port), _Handler)
        except (OSError, OverflowError) as error:
            if port is not None:
                free = "allowed: a free port, or none to have one chosen"
                raise ConfigError(f"--port {port}: {getattr(error, 'strerror', None) or error}; {free}") from None
            super().__init__((LOOPBACK, 0), _Handler)

    @property
    def address(self) -> str:
        """The address of the page, with the secret that lets its reader end a run."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def accepts(self, token: str) -> bool:
        """Return whether this is the token."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a page was closed in the middle of an answer."""

    def end(self) -> None:
        """Send the last events to the pages, and close."""
        self.ending.set()
        until = time.monotonic() + END
        for _ in range(MOST_STREAMS):
            self.streams.acquire(timeout=max(0.0, until - time.monotonic()))
        self.shutdown()
        self.server_close()


def read_page() -> str:
    """Return the page with its style, script and colors, without what differs from one answer to the next."""
    folder = resources.files("raysim.live").joinpath("page")
    page, style, *scripts = (folder.joinpath(name).read_text(encoding="utf-8") for name in (PAGE, STYLE, *SCRIPTS))
    page = page.replace("STYLE", style).replace("SCRIPT", "".join(scripts))
    palette = {"tasks": COLORS[:-1], "sequence": SEQUENCE, "dark_text": DARK_TEXT, "lost": GREY}
    return page.replace("COLORS", style_page()).replace("PALETTE_JSON", json.dumps(palette))


@contextmanager
def serve(watched: Watched, port: int | None = None) -> Iterator[LiveServer]:
    """Serve the page in a thread of this process, until the block ends. Raises ConfigError for a port in use."""
    server = LiveServer(watched, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="live page", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: LiveServer
    server_version = "raysim"
    sys_version = ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Answer with the page, or with a stream of events."""
        if not self._is_for_us():
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            self._send_page(parse_qs(asked.query).get("token", [""])[0])
        elif asked.path == "/events":
            self._send_events(self._run(asked.query), self._overlaid(asked.query))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        """Ask a run to end after its round."""
        if not self._is_for_us():
            return
        asked = urlsplit(self.path)
        run = self._run(asked.query)
        if asked.path != "/stop" or run is None:
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page")
        elif not self.server.accepts(self.headers.get(TOKEN, "")):
            self._answer(HTTPStatus.FORBIDDEN, "only the address that the command printed may end a run: open that one")
        elif (refused := self.server.watched.request_stop(run)) is not None:
            self._answer(HTTPStatus.CONFLICT, refused)
        else:
            self._answer(HTTPStatus.OK, "the run ends after its round")

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing."""

    def _is_for_us(self) -> bool:
        """Refuse a request with another Host: a foreign site may have pointed a name of its own to this machine."""
        names = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        if self.headers.get("Host", "").lower() in names:
            return True
        self._answer(HTTPStatus.FORBIDDEN, f"this page is only at http://{LOOPBACK}:{self.server.server_port}/")
        return False

    def _run(self, query: str) -> int | None:
        text = parse_qs(query).get("run", [""])[0]
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None

    def _overlaid(self, query: str) -> list[int]:
        texts = parse_qs(query).get("over", [""])[0].split(",", MOST_OVERLAID)[:MOST_OVERLAID]
        return [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 8]

    def _send_page(self, token: str) -> None:
        """Send the page, for readers with the token with the button that ends a run."""
        key = token if self.server.accepts(token) else ""
        nonce = secrets.token_hex(16)
        page = self.server.page.replace("NONCE", nonce).replace("TOKEN", key)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        policy += "; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self._begin(HTTPStatus.OK, "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        self.wfile.write(page.encode())

    def _send_events(self, run: int | None, overlaid: Sequence[int]) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"the page is open {MOST_STREAMS} times: close others first")
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream", {})
            with suppress(OSError):  # the page was closed
                self._follow(0 if run is None and not self.server.watched.folder else run, overlaid)
        finally:
            self.server.streams.release()

    def _follow(self, run: int | None, overlaid: Sequence[int]) -> None:
        """Send what is new, until the page is closed or the server ends."""
        seen: dict[str, Seen] = {}
        written = time.monotonic()
        while True:
            ending = self.server.ending.is_set()
            message, more = self.server.watched.message(run, seen, ending, overlaid)
            if message or ending:
                text = json.dumps(message | {"end": ending}, allow_nan=False, separators=(",", ":"))
                self.wfile.write(f"data: {text}\n\n".encode())
            elif time.monotonic() - written >= HEARTBEAT:
                self.wfile.write(b":\n\n")
            else:
                self.server.ending.wait(0 if more else SECONDS)
                continue
            written = time.monotonic()
            if ending and not more:
                return
            if not more:
                self.server.ending.wait(SECONDS)

    def _answer(self, status: HTTPStatus, words: str) -> None:
        self._begin(status, "text/plain; charset=utf-8", {})
        self.wfile.write(f"{words}\n".encode())

    def _begin(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Connection": "close",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
