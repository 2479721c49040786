"""The thread that serves a run's page.

Invariant: whatever ends the run, the port is free and the thread has ended when `close` returns; the run never waits
for a viewer.

Why: the thread reads the run, and the run reads nothing of the thread. `close` makes every stream of events send the
last state and end; connections that do not accept it are cut after a second.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from drift.show import as_svg
from drift.web.address import Address, host_of, is_loopback
from drift.web.metrics import CONTENT_TYPE, as_text
from drift.web.status import Status
from drift_graph.graph import Dataflow

_SAMPLE_S = 0.5
#: The interval without viewers: when one connects, there are rates and timelines.
_UNWATCHED_SAMPLE_S = 2.0
_CLOSE_S = 1.0

#: An ASGI application: (scope of a connection, receive, send).
_Application = Callable[[Any, Any, Any], Awaitable[None]]


class LivePage:
    """The page of one run, at an address; it is bound at once, and serves from `start` to `close`.

    Attributes:
        url: of the page, with the token if there is one.

    Raises:
        SettingsError: the address is in use, or the libraries are not installed.
    """

    def __init__(self, address: Address, dataflow: Dataflow, status: Status) -> None:
        self._address = address
        self._pictures = {steps: as_svg(dataflow, live=True, steps=steps) for steps in (True, False)}
        self.status = status
        self._socket = address.bound()
        self.url = address.url(self._socket.getsockname()[1])
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        self._ready = threading.Event()
        self._ended: asyncio.Event | None = None
        self._numbers: dict[str, Any] = {}
        self._sampled_s = 0.0
        self._viewers = 0

    def start(self) -> None:
        self._socket.listen()  # from now on a browser waits until it is served
        self._thread = threading.Thread(target=self._serve, name="drift web", daemon=True)
        self._thread.start()
        self._ready.wait()  # before, nobody could end it

    def close(self) -> None:
        """End serving; may be called twice."""
        if self._thread is not None:
            if self._loop is not None and self._ended is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the thread failed, and reported it
                    self._loop.call_soon_threadsafe(self._end)
            self._thread.join()
            self._thread = None
        self._socket.close()

    # In the thread.

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception:
            logging.getLogger("drift").exception("the page of the run has failed; the run continues without it")
        finally:
            self._ready.set()

    async def _run(self) -> None:
        import uvicorn

        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        config = uvicorn.Config(
            self._guarded(self._application()),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=int(_CLOSE_S),
        )
        self._server = uvicorn.Server(config)
        self._sample()
        sampling = asyncio.ensure_future(self._keep_sampling())
        self._ready.set()
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            sampling.cancel()

    def _end(self) -> None:
        assert self._ended is not None
        self._sample()
        self._ended.set()
        self._server.should_exit = True

    def _sample(self) -> dict[str, Any]:
        self._numbers, self._sampled_s = self.status.sample(), time.monotonic()
        return self._numbers

    def _sample_if_old(self) -> None:
        """Take a new sample for a request, since the last one may be old."""
        if time.monotonic() - self._sampled_s >= _SAMPLE_S:
            self._sample()

    async def _keep_sampling(self) -> None:
        assert self._ended is not None
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _SAMPLE_S if self._viewers else _UNWATCHED_SAMPLE_S)
            if not self._ended.is_set():
                self._sample()

    def _application(self) -> _Application:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
        from starlette.routing import Route

        async def page(request: Request) -> Response:
            text, policy = _page()
            return HTMLResponse(text, headers={"Content-Security-Policy": policy})

        async def picture(request: Request) -> Response:
            steps = "operators" not in request.query_params
            return Response(self._pictures[steps], media_type="image/svg+xml")

        async def status(request: Request) -> Response:
            self._sample_if_old()
            _, bars = self.status.bars(0)
            return JSONResponse({**self._numbers, "history": self.status.history(), "bars": bars})

        async def events(request: Request) -> Response:
            return StreamingResponse(self._events(), media_type="text/event-stream")

        async def metrics(request: Request) -> Response:
            self._sample_if_old()
            return Response(as_text(self._numbers["graph"], self.status.reading), media_type=CONTENT_TYPE)

        routes = [
            Route("/", page),
            Route("/graph.svg", picture),
            Route("/status.json", status),
            Route("/events", events),
            Route("/metrics", metrics),
        ]
        application: _Application = Starlette(routes=routes)
        return application

    async def _events(self) -> AsyncIterator[str]:
        """The present numbers, then updates, and at last how the run ended."""
        assert self._ended is not None
        self._viewers += 1
        try:
            async for event in self._events_until(self._ended):
                yield event
        finally:
            self._viewers -= 1

    async def _events_until(self, end: asyncio.Event) -> AsyncIterator[str]:
        self._sample()
        sent, bars = self.status.bars(0)
        event = {**self._numbers, "history": self.status.history(), "bars": bars}
        while True:
            ended = end.is_set()
            yield f"data: {json.dumps(event)}\n\n"
            if ended:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(end.wait(), _SAMPLE_S)
            sent, bars = self.status.bars(sent)
            event = {**self._numbers, "history": self.status.history()[-1:], "bars": bars}

    def _guarded(self, application: _Application) -> _Application:
        """Pass on only requests that are allowed to read the run."""
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                return
            request = Request(scope)
            host = host_of(request.headers.get("host", ""))
            if self._address.is_loopback and not is_loopback(host):
                refusal = PlainTextResponse(f"this page is at {self._address.host}, not at {host!r}\n", 421)
                await refusal(scope, receive, send)
                return
            if not self._is_allowed(request):
                text = "this page needs its token: ?token=..., or the header Authorization: Bearer ...\n"
                await PlainTextResponse(text, 401)(scope, receive, send)
                return
            if request.method not in ("GET", "HEAD"):
                await PlainTextResponse("this page can only be read: use GET or HEAD\n", 405)(scope, receive, send)
                return

            async def marked(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] += _HEADERS
                await send(message)

            await application(scope, receive, marked)

        return guarded

    def _is_allowed(self, request: Any) -> bool:
        if not self._address.token:
            return True
        token = request.query_params.get("token", "")
        kind, _, rest = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            token = rest.strip()
        return hmac.compare_digest(token.encode(), self._address.token.encode())


_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


@cache
def _page() -> tuple[str, str]:
    """The page, and the content security policy that allows only its own script and style."""
    text = (Path(__file__).with_name("page.html")).read_text(encoding="utf-8")
    policy = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'"]
    for kind, tag in (("script", "script"), ("style", "style")):
        inside = text.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        policy.append(f"{kind}-src 'sha256-{digest}'")
    return text, "; ".join(policy)
