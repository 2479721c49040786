"""Starts Spark without configuration, and ends it without leftovers.

Invariant: `stop` ends or removes everything that `start` made: the JVM, its workers, its folders and its handler of
Ctrl-C.

Why: the JVM is a child process that ends when its standard input ends, so it does not outlive a killed parent; and it
removes its own temporary folders.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drift.extras import need
from drift.spark.folders import make_folder, remove_folder
from drift_graph.errors import ProcessError, SettingsError

JAVA_MIN = 17
_STOP_MAX_S = 30

_LOGGING = """
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = Spark %p %c{1}: %m%n
"""

_CONFIGURATION = {
    "spark.app.name": "drift",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),  # of rows of batches; several copies are in memory
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "20",
}


def session(master: str = "local[*]", **configuration: str) -> Any:
    """A Spark session that needs no configuration: `with drift.spark.session() as spark:`, or end it with `stop()`.

    Args:
        master: where Spark runs: "local[4]" for four cores of this machine, "spark://host:7077", "yarn", ...
        configuration: Spark's settings with `_` for `.`, or as **{"spark.executor.memory": "4g"}.

    Raises:
        ProcessError: Spark cannot start; the message says what to install.
    """
    settings = {name if "." in name else name.replace("_", "."): value for name, value in configuration.items()}
    started = start(master, settings)
    ended = started.stop
    started.stop = lambda: stop(started, ended)
    return started


def start(master: str, configuration: dict[str, str] | None = None) -> Any:
    """A new session; see `session`."""
    pyspark_sql = _imported()
    if pyspark_sql.SparkSession.getActiveSession() is not None or _has_context():
        raise SettingsError("a Spark session is running in this process; leave out master, or stop that session")
    _check_java()
    folder = make_folder("drift-spark-")
    log_file = folder / "log4j2.properties"
    log_file.write_text(_LOGGING)
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        **_CONFIGURATION,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_file.as_uri()} -Djava.io.tmpdir={folder}",
        **(configuration or {}),
    }
    handlers = _handlers()
    output = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        with _environment(environment), _stderr_to(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            builder = pyspark_sql.SparkSession.builder.master(master)
            for name, value in settings.items():
                builder = builder.config(name, value)
            started = builder.getOrCreate()
    except Exception as error:
        _end_jvm()
        remove_folder(folder)
        raise ProcessError(f"Spark did not start at {master!r}: {_reason(error, output)}") from error
    except BaseException:  # Ctrl-C while it starts
        _end_jvm()
        remove_folder(folder)
        raise
    finally:
        _restore(handlers)
        output.close()
    started.sparkContext.setLogLevel("OFF")
    started._drift_folder, started._drift_application = folder, application_folder(started)
    return started


def active() -> Any:
    """The active session of this process, or None."""
    modules = sys.modules.get("pyspark.sql")
    return modules.SparkSession.getActiveSession() if modules is not None else None


def use_this_python(spark: Any) -> None:
    """Make the workers of a user's own session on this machine run this Python, unless another one is configured.

    Spark would take the first `python3` on the path, which is the wrong one in a virtual environment that is not
    activated.

    Raises:
        SettingsError: the session was stopped.
    """
    if hasattr(spark, "_jsparkSession") and spark.sparkContext._jsc is None:
        raise SettingsError(
            "the Spark session was stopped; make another one, for instance with drift.spark.session(), and in it the "
            "DataFrames anew"
        )
    if not hasattr(spark, "_jsparkSession") or "PYSPARK_PYTHON" in os.environ or hasattr(spark, "_drift_folder"):
        return
    if str(spark.conf.get("spark.master", "")).startswith("local"):
        spark.sparkContext.pythonExec = sys.executable


def stop(started: Any, end: Callable[[], None] | None = None) -> None:
    """End a session of `start`, and its JVM."""
    folder, application = started._drift_folder, started._drift_application
    with suppress(Exception):  # of a JVM that has already ended
        (end or started.stop)()
    _end_jvm()
    remove_folder(folder)
    shutil.rmtree(application, ignore_errors=True)
    with suppress(OSError):  # it is not empty, or was never made
        application.parent.rmdir()


def application_folder(started: Any) -> Path:
    """The folder where executors of `local-cluster` work, inside the installed pyspark; Spark does not remove it."""
    import pyspark

    return Path(pyspark.__file__).parent / "work" / str(started.sparkContext.applicationId)


def _imported() -> Any:
    if os.environ.get("SPARK_HOME") == "":
        del os.environ["SPARK_HOME"]  # Spark would search its programs in the root folder
    need("spark", "Spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyspark.sql
    return pyspark.sql


def _has_context() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _check_java() -> None:
    """Refuse to start if the JVM is missing or too old, with an error that says what to install."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    install = (
        f"Spark needs Java {JAVA_MIN} or newer: install it (Debian: apt install openjdk-17-jre-headless; macOS: brew "
        f"install openjdk@17; conda install openjdk=17), or set JAVA_HOME to where it is"
    )
    try:
        version = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise ProcessError(f"there is no Java: {program} cannot be run ({error.strerror}). {install}") from None
    except subprocess.TimeoutExpired:
        raise ProcessError(f"{program} -version has not answered for a minute. {install}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', version.stderr + version.stdout)
    if found is None:
        raise ProcessError(
            f"{program} -version says no version: {(version.stderr + version.stdout)[:300]!r}. {install}"
        )
    if int(found[1]) < JAVA_MIN:
        raise ProcessError(f"{program} is Java {found[1]}. {install}")


def _reason(error: Exception, output: Any) -> str:
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines()]
    failures = [line for line in lines if re.search(r"Exception|Error|ERROR|error:|not found|cannot", line)]
    message = str(error).strip().splitlines() or [type(error).__name__]
    thrown = next((line.removeprefix(": ") for line in message if line.startswith(": ")), message[0])
    if "stopped SparkContext" in thrown:
        thrown += " The cluster ended the application: its executors did not start; their workers' logs say why"
    return "\n  ".join([thrown, *failures[:5]])


def _end_jvm() -> None:
    """End the JVM that pyspark would keep until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or _has_running_context():
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    with suppress(Exception):  # the JVM may be gone
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    process.stdin.close()  # then the JVM ends, and removes its folders
    try:
        process.wait(_STOP_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _has_running_context() -> bool:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return context is not None and getattr(context, "_jsc", None) is not None


_Handlers = dict[int, Any]


def _handlers() -> _Handlers:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {signal.SIGINT: signal.getsignal(signal.SIGINT)}


def _restore(handlers: _Handlers) -> None:
    """Restore the handlers of signals: pyspark replaces that of Ctrl-C and discards the former one."""
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables while the JVM starts, except those that the user has set."""
    added = {name: value for name, value in values.items() if not os.environ.get(name)}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _stderr_to(file: Any) -> Iterator[None]:
    """Redirect to a file what the JVM and its start script print before their logging is set up."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
