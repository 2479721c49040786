"""Passwords of addresses: they come out nowhere, whatever characters they have."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import drift
from drift.cli.specs import sink_of, source_of
from drift.records.changes import changes_text, compare
from drift.records.code import print_of
from drift.records.fingerprint import fingerprint
from drift.state.settings import store_of
from drift.urls import checked_url, without_secrets

BEGIN, END = "Zq1", "Xk9"
passwords = st.text(st.sampled_from("/#?@ :%&='\"\\[]ä\t+.0a"), max_size=8).map(lambda text: f"{BEGIN}{text}{END}")


def written_to(sink: Any) -> None:
    sink.open()


def opened(source: Any) -> None:
    source.open().close()


def run_with_state(url: str) -> None:
    graph = drift.Graph("none")
    graph.source("s").sink("out")
    drift.run(graph, {"s": []}, state=drift.Checkpoints(url, away_max_s=0)).finish()


def read_state(url: str) -> None:
    store = store_of(drift.Checkpoints(url, away_max_s=0))
    store.open_to_read()
    store.checkpoints()


#: Each ends in an error, since nobody listens there.
USES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "state in Redis": ("redis", run_with_state),
    "state in Postgres": ("postgresql", run_with_state),
    "state that is read in Redis": ("redis", read_state),
    "state that is read in Postgres": ("postgresql", read_state),
    "state of no kind": ("ftp", run_with_state),
    "sink of Redis": ("redis", lambda url: written_to(drift.sinks.redis(url, "stream"))),
    "sink of Postgres": ("postgresql", lambda url: written_to(drift.sinks.postgres(url, "table"))),
    "source of Redis": ("redis", lambda url: opened(drift.sources.redis(url, "stream", until_end=True))),
    "source of Postgres": ("postgresql", lambda url: opened(drift.sources.postgres(url, "select 1", key="k"))),
    "sink of the command line": ("redis", lambda url: written_to(sink_of(f"{url}#stream", "continue"))),
    "source of the command line": ("postgresql", lambda url: opened(source_of(f"{url}#table:key", "s"))),
    "no source of the command line": ("sftp", lambda url: source_of(url, "s")),
    "no sink of the command line": ("sftp", lambda url: sink_of(url, "continue")),
}


@pytest.mark.parametrize("use", USES)
@given(passwords)
@example(f"{BEGIN}/{END}")
@example(f"{BEGIN}#{END}")
@example(f"{BEGIN}?{END}")
@example(f"{BEGIN}@{END}")
@example(f"{BEGIN} {END}")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_part_of_a_password_comes_out_in_an_error_or_in_the_log(
    caplog: pytest.LogCaptureFixture, use: str, password: str
) -> None:
    kind, call = USES[use]
    url = f"{kind}://me:{password}@127.0.0.1:1/0"
    caplog.clear()
    caplog.set_level(logging.DEBUG, "drift")
    with pytest.raises(drift.DriftError) as refused:
        call(url)
    assert "bug" not in str(refused.value)
    shown = [caplog.text, repr(drift.Checkpoints(url)), "".join(traceback.format_exception_only(refused.value))]
    error: BaseException | None = refused.value
    while error is not None:
        shown += [str(error), repr(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or error.__context__
    for each in shown:
        assert BEGIN not in each and END not in each, each


@given(passwords, st.sampled_from(["", " failed: no route", "; ask me@there.org", " and redis://you:other@there"]))
def test_a_text_has_no_password(password: str, rest: str) -> None:
    for text in (
        f"redis://me:{password}@host/0{rest}",
        f"cannot reach postgresql://:{password}@[::1]:5432/db#name{rest}",
        f"redis:/me:{password}@host",
    ):
        assert BEGIN not in without_secrets(text) and END not in without_secrets(text)


@pytest.mark.parametrize(
    "url",
    [
        "https://SECRET@host/a.csv", "https://me:SECRET@host/a.csv", "http://host/a?token=SECRET&b=1",
        "https://b.s3.amazonaws.com/a?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET&X-Amz-Security-Token=SECRET&b=1",
        "https://b.s3.amazonaws.com/a?AWSAccessKeyId=SECRET&Signature=SECRET&Expires=1",
        "https://b.storage.googleapis.com/a?GoogleAccessId=SECRET&X-Goog-Signature=SECRET",
        "https://a.blob.core.windows.net/b/c.csv?sv=2024&sig=SECRET", "https://host/a?api_key=SECRET",
        "postgresql://me:SECRET@host/db", "host=h password=SECRET dbname=d", "postgresql://host/db?password=SECRET",
    ],
)  # fmt: skip
def test_what_lets_its_owner_in_is_in_no_text_of_a_source(url: str) -> None:
    assert "SECRET" not in without_secrets(url) and "SECRET" not in without_secrets(f"cannot get '{url}': no route")
    if url.startswith("http"):
        closed = re.sub(r"(//(.*@)?)[^/]*/", r"\g<1>127.0.0.1:1/", url.replace("https", "http"))
        for make in (drift.sources.text, drift.sources.csv, drift.sources.jsonl, drift.sources.parquet):
            source = make(closed)
            with pytest.raises(drift.InputError) as refused:
                source.open()
            assert "SECRET" not in repr(source) + str(refused.value)


@pytest.mark.parametrize("password", ["simple", "a%2Fb", "", "a:b", "a+b=c&d"])
def test_a_url_whose_password_is_escaped_is_passed_on_as_it_is(password: str) -> None:
    for url in (f"redis://me:{password}@host:6379/0#name", "unix:///a/socket?db=0", "redis://host:6379/0#a@b"):
        assert checked_url(url) == url


def test_a_parameter_that_redis_does_not_know_is_refused_by_name() -> None:
    url, graph = "redis://127.0.0.1:1/0?nothing=1", drift.Graph("echo")
    graph.source("in").sink("out")
    for error, source, more in (
        (drift.InputError, drift.sources.redis(url, "s"), {}),
        (drift.SinkError, [], {"sinks": {"out": drift.sinks.redis(url, "s")}}),
        (drift.SettingsError, [], {"state": f"{url}#s"}),
    ):
        with pytest.raises(error, match="the client of Redis got an unexpected keyword argument 'nothing'"):
            drift.run(graph, {"in": source}, **more).finish()


SECRET = "Zq1 hunter2"
OPTIONS: dict[str, str] = {
    "uri": "postgresql+psycopg2://me:Zq1-hunter2@host/db",
    "s3.secret-access-key": SECRET,
    "token": SECRET,
    "credential": f"me:{SECRET}",
    "adls.connection-string": f"AccountKey={SECRET}",
    "header.Authorization": f"Bearer {SECRET}",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "sasl.password": SECRET,
    "warehouse": "s3://plain/place",
}


def refused(*given: Any, **options: Any) -> Any:
    """What a client of anything may say, in an error with a cause and a note."""
    given = tuple(
        each if isinstance(each, str) else [*each.values()] for each in given if isinstance(each, (str, dict))
    )
    try:
        raise KeyError(f"no {given}")
    except KeyError as cause:
        error = ValueError(f"cannot use {options}: {[*options.values()]} with {given}")
        error.add_note(repr((given, options)))
        raise error from cause


@pytest.mark.parametrize(
    ("client", "use"),
    [
        ("pyiceberg.catalog.load_catalog", {"sink": lambda: drift.sinks.iceberg("a.t", catalog=OPTIONS)}),
        ("pyiceberg.catalog.load_catalog", {"source": lambda: drift.sources.iceberg("a.t", catalog=OPTIONS)}),
        (
            "deltalake.DeltaTable.is_deltatable",
            {"sink": lambda: drift.sinks.delta("s3://b/t", storage_options=OPTIONS)},
        ),
        ("deltalake.DeltaTable", {"source": lambda: drift.sources.delta("s3://b/t", storage_options=OPTIONS)}),
        ("s3fs.S3FileSystem.__init__", {"sink": lambda: drift.sinks.parquet("s3://b/t", storage_options=OPTIONS)}),
        ("s3fs.S3FileSystem.__init__", {"source": lambda: drift.sources.jsonl("s3://b/t", storage_options=OPTIONS)}),
        ("confluent_kafka.Consumer", {"sink": lambda: drift.sinks.kafka("h:1", "t", config=OPTIONS)}),
    ],
)
def test_what_a_client_says_of_its_options_is_in_no_error_record_report_or_log(
    client: str, use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, refused)
    graph = drift.Graph("secret")
    graph.source("s").sink("out")
    caplog.set_level(logging.DEBUG, "drift")
    sinks = {"out": use["sink"]()} if "sink" in use else {}
    with pytest.raises((drift.DriftError, ValueError)) as raised:
        source = use["source"]() if "source" in use else [1]
        drift.run(graph, {"s": source}, sinks=sinks, record=tmp_path / "record").finish()
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()).decode(errors="replace")
    shown = "".join(traceback.format_exception(raised.value))
    assert "hunter2" not in shown + caplog.text + written and "s3://plain/place" in shown


def test_a_sink_of_another_kind_and_a_function_may_say_what_they_want_but_not_the_password_of_a_source() -> None:
    def take(item: Any) -> None:
        raise ValueError("lost postgresql://me:hunter2@host/db, and mail bob@example.org at http://host:80/a")

    graph = drift.Graph("secret")
    graph.source("s").sink("out")
    with pytest.raises(drift.SinkError) as raised:
        drift.run(graph, {"s": [1]}, sinks={"out": take}).finish()
    assert "postgresql://me:***@host/db, and mail bob@example.org at http://host:80/a" in str(raised.value)


class Holder:
    def __init__(self) -> None:
        self.api_token = "hunter2"
        self.dsn = "host=h password=hunter2 dbname=d"

    def __call__(self, number: int) -> int:
        return number


def test_no_secret_that_a_function_holds_is_in_a_fingerprint_and_each_is_another_function() -> None:
    def holding(secret: str) -> Callable[[int], Any]:
        url, db_password = f"redis://:{secret}@host/0", secret
        options = {"api_key": secret, "region": "eu", "more": [url]}
        long = "a" * 180 + url  # its text is cut behind the password

        def ask(number: int, dsn: str = f"postgresql://me:{secret}@host/db", *, token: str = secret) -> Any:
            own = "https://me:hunter2@host/a?sig=hunter2&b=1"
            access_key = b"hunter2"
            if token == "hunter2" or options["api_key"] == "hunter2":
                return {"password": "hunter2", "key": "zone"}, own, access_key, url, long, db_password
            return dsn

        return ask

    for function in (holding("hunter2"), Holder(), partial(holding("hunter2"), token="hunter2")):
        printed = repr(print_of(function))
        assert "hunter2" not in printed
    printed = repr(print_of(holding("hunter2")))
    assert "redis://:***@host/0" in printed and "'region': 'eu'" in printed and '"key": "zone"' in printed
    assert print_of(holding("hunter2"))["code"] != print_of(holding("hunter3"))["code"]
    prints = []
    for secret in ("hunter2", "hunter3"):
        graph = drift.Graph("secret")
        graph.source("s").map(holding(secret)).sink("out")
        prints.append(fingerprint(graph.build()))
    changes = changes_text(compare(*prints))
    assert "redis://:***@host/0" in changes and "hunter" not in changes
