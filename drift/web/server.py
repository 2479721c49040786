"""The thread that serves the pages of runs.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Protocol

from drift.web.address import Address, host_of, is_loopback
from drift.web.metrics import CONTENT_TYPE
from drift.web.status import Row

_SAMPLE_S = 0.5
#: The interval without viewers: when one connects, there are rates and timelines.
_UNWATCHED_SAMPLE_S = 2.0
_CLOSE_S = 1.0

#: An ASGI application: (scope of a connection, receive, send).
_Application = Callable[[Any, Any, Any], Awaitable[None]]


class Shown(Protocol):
    """A run that has a page; `Status` is one in this process."""

    def sample(self) -> dict[str, Any]: ...
    def history(self) -> list[Row]: ...
    def bars(self, after: int) -> tuple[int, list[list[Any]]]: ...
    @property
    def picture(self) -> str | None: ...
    def metrics(self) -> bytes | None: ...


class _Sampled:
    """A run, and its last sample."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.numbers: dict[str, Any] = {}
        self._at_s = 0.0

    def sample(self) -> dict[str, Any]:
        self.numbers, self._at_s = self.shown.sample(), time.monotonic()
        return self.numbers

    def sample_if_old(self) -> None:
        """Take a new sample for a request, since the last one may be old."""
        if time.monotonic() - self._at_s >= _SAMPLE_S:
            self.sample()

    def event(self, sent: int, *, latest: bool) -> tuple[int, dict[str, Any]]:
        """What a page gets: all of the history or the latest row, and the bars after those that were sent."""
        sent, bars = self.shown.bars(sent)
        history = self.shown.history()
        return sent, {**self.numbers, "history": history[-1:] if latest else history, "bars": bars}


class LivePage:
    """The pages of runs, at an address; it is bound at once, and serves from `start` to `close`.

    Args:
        runs: by the path of their page: "" for that of the only one; of several, "/" lists them.

    Attributes:
        url: of the page, with the token if there is one.

    Raises:
        SettingsError: the address is in use, or the libraries are not installed.
    """

    def __init__(self, address: Address, runs: Mapping[str, Shown]) -> None:
        self._address = address
        self._runs = {path: _Sampled(shown) for path, shown in runs.items()}
        self._socket = address.bound()
        self.url = address.url(self._socket.getsockname()[1])
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        self._ready = threading.Event()
        self._ended: asyncio.Event | None = None
        self._viewers = 0

    def start(self) -> None:
        self._socket.listen()  # from now on a browser waits until it is served
        self._thread = threading.Thread(target=self._serve, name="drift web", daemon=True)
        self._thread.start()
        self._ready.wait()  # before, nobody could end it

    def wait(self) -> None:
        """Serve until the thread ends, or this one is interrupted."""
        assert self._thread is not None
        self._thread.join()

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
        try:
            self._sample()
        finally:  # else `close` would wait for ever
            self._ended.set()
            self._server.should_exit = True

    def _sample(self) -> None:
        for run in self._runs.values():
            run.sample()

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

        def routes_of(path: str, run: _Sampled) -> list[Route]:
            async def page(request: Request) -> Response:
                text, policy = _page()
                return HTMLResponse(text, headers={"Content-Security-Policy": policy})

            async def picture(request: Request) -> Response:
                found = run.shown.picture
                return Response(found, media_type="image/svg+xml") if found is not None else Response(status_code=404)

            async def status(request: Request) -> Response:
                run.sample_if_old()
                return JSONResponse(run.event(0, latest=False)[1])

            async def events(request: Request) -> Response:
                return StreamingResponse(self._events(run), media_type="text/event-stream")

            async def metrics(request: Request) -> Response:
                run.sample_if_old()
                found = run.shown.metrics()
                return Response(found, media_type=CONTENT_TYPE) if found is not None else Response(status_code=404)

            ends = {"": page, "graph.svg": picture, "status.json": status, "events": events, "metrics": metrics}
            return [Route(f"/{path}{end}", endpoint) for end, endpoint in ends.items()]

        async def listed(request: Request) -> Response:
            text, policy = self._list()
            return HTMLResponse(text, headers={"Content-Security-Policy": policy})

        routes = [route for path, run in self._runs.items() for route in routes_of(path, run)]
        application: _Application = Starlette(routes=routes if "" in self._runs else [Route("/", listed), *routes])
        return application

    def _list(self) -> tuple[str, str]:
        """A page with a link to each run."""
        query = f"?token={self._address.token}" if self._address.token else ""
        rows = [
            f'<li><a href="{path}{query}">{escape(run.numbers["graph"])}</a>: {escape(run.numbers["state"])}, '
            f"{run.numbers['items_in']:,} items read ({escape(str(run.numbers.get('stored', '')))})</li>"
            for path, run in self._runs.items()
        ]
        text = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>drift</title><ul>{"".join(rows)}</ul></html>'
        )
        return text, "default-src 'none'; base-uri 'none'; form-action 'none'"

    async def _events(self, run: _Sampled) -> AsyncIterator[str]:
        """The present numbers, then updates, and at last how the run ended."""
        assert self._ended is not None
        self._viewers += 1
        try:
            async for event in self._events_until(run, self._ended):
                yield event
        finally:
            self._viewers -= 1

    async def _events_until(self, run: _Sampled, end: asyncio.Event) -> AsyncIterator[str]:
        run.sample()
        sent, event = run.event(0, latest=False)
        row = event["history"][-1:]
        while True:
            ended = end.is_set()
            yield f"data: {json.dumps(event)}\n\n"
            if ended:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(end.wait(), _SAMPLE_S)
            sent, event = run.event(sent, latest=True)
            if event["history"] == row:  # as of a run that has ended: the page adds what it gets to what it has
                event["history"] = []
            else:
                row = event["history"]

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
