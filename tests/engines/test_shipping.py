"""Functions and classes of a script, and settings of its process, in other processes: as if they had been there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import HANG_S

#: A script of things that a pickle cannot send by name, and that cloudpickle cannot send by value, or not whole.
ZOO = '''
import dataclasses, enum, functools, operator, typing
import msgspec
import drift

@functools.lru_cache(maxsize=10)
def fibonacci(n: int) -> int:
    """Of a cached function, which calls itself through its cache."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def kind(value):
    return "object"

@kind.register
def _(value: int):
    return "int"

def decorated(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

@decorated
@functools.cache
def cached_inside(n):
    return n

class Point(msgspec.Struct):
    x: int
    tags: list = msgspec.field(default_factory=list)
    def twice(self):
        return self.x * 2

class Named(Point, frozen=True, kw_only=True, tag="named", rename="camel", order=True):
    """With everything."""
    full_name: str = "n"
    inside: "Named | None" = None
    LIMIT: typing.ClassVar[int] = 7
    def __post_init__(self):
        assert isinstance(self, Named)
    def twice(self):
        return super().twice() + 1

T = typing.TypeVar("T")

class Box(msgspec.Struct, typing.Generic[T], array_like=True):
    value: T
    other: int = msgspec.field(default=3, name="o")

class Tally:
    def __init__(self, n):
        self.n = n
    @functools.cached_property
    def more(self):
        return self.n + 1
    @functools.lru_cache(maxsize=None)
    def most(self):
        return self.n + 2
    @functools.singledispatchmethod
    def of(self, value):
        return "object"
    @of.register
    def _(self, value: int):
        return "int"
    @staticmethod
    @functools.lru_cache
    def thrice(n):
        return n * 3
    add_two = functools.partialmethod(lambda self, n: self.n + n, 2)

class Slotted:
    __slots__ = ("__hidden",)
    def __init__(self, n):
        self.__hidden = n
    @property
    def hidden(self):
        return self.__hidden

@dataclasses.dataclass(slots=True)
class Pair:
    left: int
    right: "Named | None" = None

class Row(typing.NamedTuple):
    a: int
    b: str = "b"
    def upper(self):
        return self.b.upper()

class Colour(enum.Flag):
    RED = 1
    BLUE = 2

class HasValue(typing.Protocol[T]):
    def value(self) -> T: ...

class Four(HasValue[int]):
    def value(self):
        return 4

Number = typing.NewType("Number", int)

class Registered:
    """No other class of the script suffers from one that cannot be rebuilt elsewhere."""
    def __init_subclass__(cls, *, name, **more):
        super().__init_subclass__(**more)
        cls.name = name

class Unused(Registered, name="unused"):
    pass

def everything(n):
    named = Named(x=n, full_name="f", inside=Named(x=1))
    try:
        Slotted(n).unknown = 1
        raise AssertionError("a class lost its slots")
    except AttributeError:
        pass
    return (
        fibonacci(n), kind(n), kind("text"), cached_inside(n), Point(n).twice(), named.twice(), named.LIMIT,
        msgspec.json.encode(named), msgspec.json.decode(msgspec.json.encode(named), type=Named) == named,
        Named(x=1) < named, Named.__doc__, Tally(n).more, Tally(n).most(), Tally(n).of(n), Tally.thrice(n),
        Tally(n).add_two(), Slotted(n).hidden,
        msgspec.json.encode(Box[int](n)), Row(n).upper(), Colour.RED | Colour.BLUE == Colour(3), Four().value(),
        Number(n), str(typing.get_type_hints(Pair)["right"]), fibonacci.cache_info().maxsize, fibonacci.__doc__,
        Named(x=1), Point(2, ["a"]), Box(n), Pair(n), Pair(n, named), Row(n),
    )

def outputs(engine, **more):
    graph = drift.Graph("zoo")
    numbers = graph.source("numbers")
    steps = (everything, fibonacci, kind, functools.partial(pow, 2), functools.lru_cache(lambda n: n), Tally(3).of,
             Tally.thrice)
    first, *others = (numbers.map(step, name=f"step {at}") for at, step in enumerate(steps))
    first.merge(*others).group(lambda payload: 0, 1).sink("out")
    numbers.map(lambda n: (n,)).map(operator.itemgetter(0)).sink("got")
    run = drift.run(graph, {"numbers": range(4)}, engine=engine, **more)
    return [item.payload for item in run], run.digest
'''
RUN = """
if __name__ == "__main__":
    assert outputs("local") == outputs({engine}), "another output"
    print("same")
"""


def ended(*command: str, text: str | None = None, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], input=text, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.smoke
def test_what_a_script_defines_works_over_zeromq(tmp_path: Path) -> None:
    script = tmp_path / "zoo.py"
    script.write_text(ZOO + RUN.format(engine='"zeromq"'))
    assert ended(str(script)) == "same"


def test_what_a_command_defines_works_over_zeromq() -> None:
    assert ended("-c", ZOO + RUN.format(engine='"zeromq"')) == "same"
    assert ended("-", text=ZOO + RUN.format(engine='"zeromq"')) == "same"


def test_what_a_module_defines_works_over_zeromq(tmp_path: Path) -> None:
    (tmp_path / "zoo.py").write_text(ZOO + RUN.format(engine='"zeromq"'))
    use = "import zoo; assert zoo.outputs('local') == zoo.outputs('zeromq'); print('same')"
    assert ended("-c", use, PYTHONPATH=str(tmp_path)) == "same"
    assert ended("-m", "zoo", PYTHONPATH=str(tmp_path)) == "same"


def test_what_a_process_of_multiprocessing_defines_works_over_zeromq(tmp_path: Path) -> None:
    script = tmp_path / "zoo.py"
    run = """
        import multiprocessing
        def same():
            return outputs("zeromq") == outputs("local")
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(same)
            print("same")
        """
    script.write_text(ZOO + textwrap.dedent(run))
    assert ended(str(script)) == "same"


def test_what_a_notebook_defines_works_over_zeromq(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(each) for each in (ZOO, "print(outputs('local') == outputs('zeromq'))")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "1"}
    client = nbclient.NotebookClient(notebook, timeout=HANG_S, startup_timeout=HANG_S, kernel_name="python3")
    client.execute(env=environment)
    printed = [each.text for each in notebook.cells[1].outputs if each.output_type == "stream"]  # a bar may be there
    assert printed == ["True\n"]


def test_a_class_that_cannot_be_rebuilt_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        ZOO
        + textwrap.dedent("""
        graph = drift.Graph("unused")
        graph.source("numbers").map(lambda n: Unused.name).sink("out")
        try:
            drift.run(graph, {"numbers": [1]}, engine="zeromq").finish()
        except drift.GraphError as error:
            print(error)
        """)
    )
    said = ended(str(script))
    assert "could not rebuild the functions of the graph" in said and "define it in a module" in said


SEEN = '''
import decimal, locale, os, sys, time, warnings
from decimal import Decimal
import drift

def seen(n):
    """All that the standard library keeps for a process and a function may go by."""
    try:
        warnings.warn("careful", UserWarning)
        warned = False
    except UserWarning:
        warned = True
    try:
        big = len(str(10 ** 5000))
    except ValueError:
        big = 0
    def deep(left):
        return left and deep(left - 1)
    try:
        depth = deep(3000)
    except RecursionError:
        depth = -1
    return (
        n, str(Decimal(1) / 3), decimal.getcontext().rounding, bool(decimal.getcontext().traps[decimal.Inexact]),
        locale.format_string("%.1f", 1.5), locale.setlocale(locale.LC_NUMERIC), time.localtime(0).tm_hour, os.getcwd(),
        big, warned, depth, sys.path[-1],
    )

def outputs(engine, **more):
    graph = drift.Graph("seen")
    graph.source("numbers").map(seen).group(lambda payload: 0, 1).sink("out")
    run = drift.run(graph, {"numbers": range(3)}, engine=engine, **more)
    return [item.payload for item in run], run.digest
'''
CHANGED = """
if __name__ == "__main__":
    import json
    before = outputs("local")
    decimal.getcontext().prec = 50
    decimal.getcontext().rounding = decimal.ROUND_UP
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    os.chdir("/")
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(5000)
    warnings.simplefilter("error", UserWarning)
    sys.path.append("/elsewhere")
    here = outputs("local")
    assert here != before
    there = outputs({engine})
    print(json.dumps([here[0], there[0]]))
    assert here == there
"""


@pytest.mark.parametrize("engine", ['"zeromq"', '"local", check_purity=True'])
def test_settings_of_the_process_are_those_of_its_workers(engine: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    where = "locale.setlocale(locale.LC_NUMERIC), time.localtime(0).tm_hour, os.getcwd()"
    assert where in SEEN
    looks = SEEN.replace(where, "'C', 9, '/'") if "check_purity" in engine else SEEN  # whose processes are elsewhere
    script.write_text(looks + CHANGED.format(engine=engine))
    check_settings(ended(str(script)))


def check_settings(printed: str) -> None:
    here, there = json.loads(printed.splitlines()[-1])
    assert here == there
    assert here[0][0][1] == "0." + "3" * 49 + "4" and here[0][0][6:] == [9, "/", 5001, True, 0, "/elsewhere"]


def test_what_a_script_defines_works_on_spark_and_so_do_the_settings_of_its_process(tmp_path: Path) -> None:
    """Settings change after the session began, so its processes have them of the run."""
    script = tmp_path / "script.py"
    begun = 'if __name__ == "__main__":\n    session = drift.spark.session("local[2]")\n'
    changed = CHANGED.format(engine='"spark"') + "    session.stop()\n"
    script.write_text(ZOO + begun + RUN.format(engine='"spark"') + SEEN + changed)
    printed = ended(str(script))
    assert printed.splitlines()[0] == "same"
    check_settings(printed)
