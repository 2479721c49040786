"""Which expressions of Polars are row by row: each node of an expression's tree is looked up in a list.

Invariant: what passes `check` gives a row the same whatever other rows are in its batch, and the same in each version,
thread count and representation of the data; what is on no list is refused.

Why: Polars serializes an expression as a tree whose nodes have names, selectors and fields of structs included, so
nothing needs to be guessed from an expression's text. A name that is new in a version of Polars is on no list. What
depends on types (`is_in` of a column, the physical number of a category) is asked of the schema, node by node.

Two lists: functions of a row, and functions of a sequence. The second may stand within the lists of a row
(`list.eval`, `arr.agg`), whose elements are all there, and be applied to constants.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from drift_graph.errors import GraphError

#: Names of nodes, of functions, and of functions of namespaces, as Polars serializes them.
Names = frozenset[str]


def _names(prefix: str, text: str) -> Iterator[str]:
    return (prefix + name for name in text.split())


#: Functions of a row.
OF_ROWS: Names = frozenset([
    *_names("", """Alias Column Selector Literal DataTypeFunction BinaryExpr Cast Ternary Function Field Eval StructEval
        KeepName RenameAlias"""),
    *_names("", """Abs Negate Atan2 Sign FillNull RepeatBy Clip AsList AsStruct Coalesce Log Log1p Exp Erf Erfc Round
        RoundSF Truncate Floor Ceil MaxHorizontal MinHorizontal SumHorizontal MeanHorizontal Replace
        ReplaceStrict Reinterpret ToPhysical Cut Bin"""),
    *_names("FillNullWithStrategy.", "Zero One"),
    *_names("Pow.", "Generic Sqrt Cbrt"),
    *_names("Sql.", "Binary IsIn ToFloat Round"),
    *_names("Trigonometry.", """Cos Cot Sin Tan ArcCos ArcSin ArcTan Cosh Sinh Tanh ArcCosh ArcSinh ArcTanh Degrees
        Radians"""),
    *_names("Boolean.", """IsNull IsNotNull IsFinite IsInfinite IsNan IsNotNan IsBetween IsIn IsClose AllHorizontal
        AnyHorizontal Not"""),
    *_names("Bitwise.", "CountOnes CountZeros LeadingOnes LeadingZeros TrailingOnes TrailingZeros"),
    *_names("Business.", "BusinessDayCount AddBusinessDay IsBusinessDay"),
    *_names("Range.", "IntRanges LinearSpaces DateRanges DatetimeRanges TimeRanges"),
    *_names("Categorical.", "LenBytes LenChars StartsWith EndsWith Slice"),
    *_names("BinaryExpr.", """Contains StartsWith EndsWith HexDecode HexEncode Base64Decode Base64Encode Size
        Reinterpret Slice Head Tail Get"""),
    *_names("StringExpr.", """Format ConcatHorizontal Contains CountMatches EndsWith Extract ExtractAll ExtractGroups
        Find ToInteger LenBytes LenChars Lowercase JsonDecode JsonPathMatch Replace Normalize Reverse PadStart PadEnd
        Slice Head Tail HexEncode HexDecode Base64Encode Base64Decode StartsWith StripChars StripCharsStart
        StripCharsEnd StripPrefix StripSuffix SplitExact SplitN Strptime Split SplitRegex ToDecimal Titlecase Uppercase
        ZFill ContainsAny ReplaceMany ExtractMany FindMany EscapeRegex"""),
    *_names("StructExpr.", """FieldByName RenameFields Drop PrefixFields SuffixFields JsonEncode SelectFields"""),
    *_names("TemporalExpr.", """Millennium Century Year IsLeapYear IsoYear Quarter Month DaysInMonth Week WeekDay Day
        OrdinalDay Time Date Datetime Duration Hour Minute Second Millisecond Microsecond Nanosecond TotalDays
        TotalHours TotalMinutes TotalSeconds TotalMilliseconds TotalMicroseconds TotalNanoseconds ToString CastTimeUnit
        WithTimeUnit ConvertTimeZone TimeStamp Truncate OffsetBy MonthStart MonthEnd BaseUtcOffset DSTOffset Round
        Replace ReplaceTimeZone Combine DatetimeFunction"""),
    *_names("ListExpr.", """Concat Contains DropNulls Slice Shift Get Gather GatherEvery CountMatches Sum Length Max
        Min Mean Median Std Var ArgMin ArgMax Diff Sort SetOperation Join ToArray ToStruct ToMap"""),
    *_names("ArrayExpr.", """Length Slice Min Max Sum Dot ToList Std Var Mean Median Sort ArgMin ArgMax Get Join
        Contains CountMatches Shift Concat ToStruct"""),
    *_names("MapExpr.", "Entries Keys Values Length ContainsKey Get"),
])  # fmt: skip

#: Functions of a sequence that depend on its values and their order alone.
OF_SEQUENCES: Names = frozenset([
    *_names("", "Element Len Sort Gather SortBy Agg Explode Filter Slice"),
    *_names("Agg.", """Min Max Median NUnique First FirstNonNull Last LastNonNull Item Mean Implode Count Sum Std
        Var"""),
    *_names("", """NullCount ArgWhere IndexOf SearchSorted RollingExpr ShiftAndFill Shift DropNans DropNulls Quantile
        Skew Kurtosis ArgUnique ArgMin ArgMax ArgSort Product Rank TopK CumCount CumSum CumProd CumMin CumMax Reverse
        UniqueCounts Diff PctChange Entropy Unique PeakMin PeakMax RLE RLEID EwmMean EwmSum EwmStd EwmVar GatherEvery
        UpperBound LowerBound"""),
    *_names("FillNullWithStrategy.", "Backward Forward Mean Min Max"),
    *_names("Diff.", "Drop Ignore"),
    *_names("Interpolate.", "Linear Nearest"),
    *_names("Bitwise.", "And Or Xor"),
    *_names("Boolean.", "Any All IsEmpty HasNulls IsFirstDistinct IsLastDistinct IsUnique IsDuplicated IsSorted"),
    *_names("Range.", "IntRange LinearSpace DateRange DatetimeRange TimeRange"),
    *_names("StringExpr.", "ConcatVertical"),
    *_names("ArrayExpr.", "Explode"),
])  # fmt: skip

_OTHER_ROWS = (
    "is not row by row: its result for a row depends on other rows, and so on how they come in batches; for sums, "
    "ranks and rows before use windows, scan or at_end"
)
_ROWS_COUNT = (
    "is not row by row: it gives another number of rows than it takes; drop rows with stream.filter, and make several "
    "of one with stream.flat_map"
)
_PYTHON = "calls Python; use stream.map for functions of Python"
_UNSTEADY = "has another result with another version of Polars; hash with a function of Python, stream.map"
_ORDER = (
    "has an order that Polars does not promise; use functions with an order of their own, such as "
    "unique(maintain_order=True), sort, or windows"
)
_INTERNAL = "is about how Polars stores rows, which is not in them; leave it out"
_DRAWN = "is drawn anew; draw from what is in the row, with a function of Python, stream.map"
_OF_PARTS = "has a result that depends on how Polars cuts the values into parts; use windows, scan or at_end"

#: What is on neither list, looked at and refused, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        _names(
            "",
            """Over Rolling Eval.Cumulative RollingExprBy InterpolateBy EwmMeanBy EwmSumBy Correlation QCut Hist
        TopKBy""",
        ),
        _OTHER_ROWS,
    ),
    **dict.fromkeys(_names("", "Append Repeat Reshape ExtendConstant ConcatExpr"), _ROWS_COUNT),
    **dict.fromkeys(
        _names(
            "",
            """AnonymousFunction FfiPlugin FoldHorizontal ReduceHorizontal CumReduceHorizontal CumFoldHorizontal
        PipeWithDtype StructExpr.MapFieldNames""",
        ),
        _PYTHON,
    ),
    **dict.fromkeys(_names("", "Hash Mm3Hash"), _UNSTEADY),
    **dict.fromkeys(_names("", "Mode ValueCounts MinBy MaxBy"), _ORDER),
    **dict.fromkeys(
        _names(
            "",
            """SubPlan Display SetSortedFlag Rechunk RowEncode.Unordered RowEncode.Ordered RowDecode Extension.To
        Extension.Storage Categorical.To Categorical.Physical Categorical.GetCategories Agg.AggGroups DecimalArith
        TruncArith.Rem TruncArith.IntDiv""",
        ),
        _INTERNAL,
    ),
    **dict.fromkeys(_names("", "Random ListExpr.Sample"), _DRAWN),
    **dict.fromkeys(_names("", "ApproxNUnique ApproxQuantile"), _OF_PARTS),
}
_COUNTS = frozenset(
    _names(
        "",
        """Explode ArrayExpr.Explode Filter DropNulls DropNans Slice Gather Unique TopK GatherEvery RLE UniqueCounts""",
    )
)

#: Of functions with functions of their own.
_SPACES = frozenset(
    _names(
        "",
        """ArrayExpr BinaryExpr Categorical Extension ListExpr MapExpr StringExpr StructExpr TemporalExpr Bitwise
        Boolean Business Pow Range Trigonometry FillNullWithStrategy Diff Interpolate Sql TruncArith RowEncode""",
    )
)
#: Functions with arguments that are constants of several values: they would take those of a column from all rows.
_TAKE_SEVERAL: dict[str, slice] = {
    **dict.fromkeys(_names("", "Boolean.IsIn Sql.IsIn"), slice(1, 2)),
    **dict.fromkeys(_names("", "Replace ReplaceStrict"), slice(1, 3)),
    **dict.fromkeys(_names("StringExpr.", "ContainsAny ReplaceMany ExtractMany FindMany"), slice(1, 3)),
    **dict.fromkeys(_names("Business.", "BusinessDayCount AddBusinessDay IsBusinessDay"), slice(-1, None)),
}
_SHOWN = {
    "StringExpr": "str.",
    "ListExpr": "list.",
    "ArrayExpr": "arr.",
    "TemporalExpr": "dt.",
    "StructExpr": "struct.",
    "BinaryExpr": "bin.",
    "Categorical": "cat.",
    "Extension": "ext.",
    "Bitwise": "bitwise_",
    "Eval": "cumulative_eval",
}

#: A node as Polars serializes it: a name, or a name with what it is of.
Node = Any


def check(given: pl.Expr, fields: Sequence[tuple[str, Any]], what: str) -> list[str]:
    """The fields that an expression names, in order; an error if it is not row by row.

    Args:
        what: the expression and its place, for errors.

    Raises:
        GraphError: it is not row by row, or gives what depends on more than its row.
    """
    try:
        tree = _tree(given)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError) as error:
        raise GraphError(f"{what} cannot be written down: {error}; use stream.map for functions of Python") from None
    look = _Look(pl.DataFrame(schema=pl.Schema(fields)).lazy(), what)
    look.of_row(tree, _Place())
    return look.named


def fields_read(given: pl.Expr) -> tuple[str, ...] | None:
    """The fields that an expression reads; None if it has selectors, for which the schema says it."""
    names: dict[str, None] = {}
    todo = [_tree(given)]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if "Selector" in node:
                return None
            if isinstance(name := node.get("Column"), str) and name:
                names[name] = None
            todo.extend(node.values())
        elif isinstance(node, list) and node and not isinstance(node[0], int):
            todo.extend(node)
    return tuple(names)


def with_fixed_sums(given: pl.Expr) -> pl.Expr:
    """The expression, with sums and means of lists that are added one after the other, whatever other rows have.

    Polars adds the floats of a list in another order if a list of any other row has a null. So lists lose their nulls
    first; nulls count for nothing in these sums.
    """
    tree = _tree(given)
    fixed = _with_fixed_sums(tree)
    if fixed == tree:
        return given
    found = _expression_of(fixed)
    if _tree(found) != fixed:
        raise GraphError(f"{given!s:.200} has a number that is not written down exactly; sum the list in a step before")
    return found


def _tree(given: pl.Expr) -> Node:
    return json.loads(given.meta.serialize(format="json"))


def _expression_of(tree: Node) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")


def _with_fixed_sums(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_fixed_sums(each) for each in node] if node and not isinstance(node[0], int) else node
    if not isinstance(node, dict):
        return node
    node = {name: _with_fixed_sums(each) for name, each in node.items()}
    match node:
        case {"Function": {"input": [of], "function": {"ListExpr": "Sum" | "Mean"}}}:
            node["Function"]["input"] = [_function("DropNulls", of)]
        case {"Function": {"input": [of], "function": {"ArrayExpr": "Sum"}}}:
            values = _function("DropNulls", {"Function": {"input": [of], "function": {"ArrayExpr": "ToList"}}})
            node = _function("Sum", values)
    return node


def _function(name: str, of: Node) -> Node:
    return {"Function": {"input": [of], "function": {"ListExpr": name}}}


class _Place:
    """Where a node is: of a row, or within a value of `of`; `wraps` makes an expression of rows of a node there."""

    def __init__(self, within: _Place | None = None, wraps: Callable[[Node], Node] | None = None) -> None:
        self._within, self._wraps = within, wraps

    @property
    def is_row(self) -> bool:
        return self._within is None

    def kinds(self, node: Node, rows: pl.LazyFrame) -> list[Any]:
        """The types of a node's values: those of an expression that makes it a value of rows."""
        if self._within is None or self._wraps is None:
            return rows.select(_expression_of(node)).collect_schema().dtypes()
        made = self._within.kinds(self._wraps(node), rows)
        return [part for kind in made for part in _parts_of(kind)]


def _parts_of(kind: Any) -> list[Any]:
    if isinstance(kind, pl.Struct):
        return [field.dtype for field in kind.fields]
    return [kind.inner] if isinstance(kind, (pl.List, pl.Array)) else []


def types_inside(kind: Any) -> Iterator[Any]:
    """A type and those of its parts."""
    yield kind
    for part in _parts_of(kind):
        yield from types_inside(part)


class _Look:
    """One expression's nodes, looked up."""

    def __init__(self, rows: pl.LazyFrame, what: str) -> None:
        self._rows, self._what = rows, what
        self.named: list[str] = []

    def of_row(self, node: Node, place: _Place) -> None:
        """A node whose result is to be one value of a row."""
        if not _is_constant(node):
            self._node(node, place, OF_ROWS)
        elif not _is_scalar(node):
            self._constant(node, place)

    def _constant(self, node: Node, place: _Place, *, several: bool = False) -> None:
        self._node(node, place, OF_ROWS | OF_SEQUENCES)
        if several:
            return
        try:
            count = pl.select(_expression_of(node)).height
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise GraphError(f"{self._what} has a constant that cannot be computed: {error}") from None
        if count != 1:
            raise self._refused(
                "pl.lit", f"has {count} values, and a row takes one; make it a list, .implode(), or a constant"
            )

    def _node(self, node: Node, place: _Place, names: Names) -> None:
        kind, of = _split(node)
        if kind not in names:
            raise self._unlisted(f"Agg.{_split(of)[0]}" if kind == "Agg" else kind, names)
        if kind == "Column":
            if of or place.is_row:  # elements of a list are of a field ""
                self.named.append(of)
        elif kind == "Selector":
            self.named.extend(_names_of(of))
        elif kind == "Function":
            self._function(of, place, names)
        elif kind == "Eval":
            self._each(place, names, of["expr"])
            variant, _ = _split(of["variant"])
            if variant == "Cumulative":
                raise self._unlisted("Eval.Cumulative", names)
            within = _Place(place, lambda part: {"Eval": {**of, "evaluation": part, "variant": "List"}})
            self._node(of["evaluation"], within, OF_ROWS | OF_SEQUENCES)
        elif kind == "StructEval":
            self._each(place, names, of["expr"])
            within = _Place(place, lambda part: {"StructEval": {**of, "evaluation": [{"Alias": [part, "\1"]}]}})
            self._each(within, names, *of["evaluation"])
        elif kind == "Agg":
            name, parts = _split(of)
            if f"Agg.{name}" not in names:
                raise self._unlisted(f"Agg.{name}", names)
            self._each(place, names, _input_of(parts))
        else:
            if kind == "RenameAlias" and "Map" in json.dumps(of["function"]):
                raise self._refused("name.map", _PYTHON)
            if kind == "Cast":
                self._check_categories(of["expr"], place, of["dtype"])
            self._each(place, names, *_CHILDREN[kind](of) if kind in _CHILDREN else ())

    def _each(self, place: _Place, names: Names, *nodes: Node) -> None:
        for node in nodes:
            if names is OF_ROWS:
                self.of_row(node, place)
            else:
                self._node(node, place, names)

    def _function(self, of: Any, place: _Place, names: Names) -> None:
        name, more = _split(of["function"])
        if name in _SPACES:
            inner, more = _split(more)
            name = f"{name}.{inner}"
        if name not in names:
            raise self._unlisted(name, names)
        inputs = of["input"]
        rule = _RULES.get(name)
        why = None if rule is None else rule(self, inputs, more, place, names)
        if why is not None:
            raise self._refused(_shown(name), why)
        several = inputs[_TAKE_SEVERAL[name]] if name in _TAKE_SEVERAL else []
        for each in inputs:
            if each in several and _is_constant(each):
                self._constant(each, place, several=True)
            elif each in several and rule is None and names is OF_ROWS:
                raise self._refused(_shown(name), f"with values of a column {_OTHER_ROWS}, or a list of constants")
            else:
                self._each(place, names, each)

    def kinds(self, node: Node, place: _Place) -> list[Any]:
        """The types of a node's values, and of their parts.

        Raises:
            GraphError: Polars does not say.
        """
        try:
            made = place.kinds(node, self._rows)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise GraphError(f"{self._what} cannot be computed of these rows: {error}") from None
        return [part for kind in made for part in types_inside(kind)]

    def _check_categories(self, of: Node, place: _Place, target: Any) -> None:
        """A category's number is another in each process."""
        if _is_constant(of) or not _in_numbers(target):
            return
        if any(isinstance(kind, pl.Categorical) for kind in self.kinds(of, place)):
            raise self._refused("cast", _CATEGORY)

    def _refused(self, name: str, why: str) -> GraphError:
        return GraphError(f"{self._what}: {name} {why}")

    def _unlisted(self, name: str, names: Names) -> GraphError:
        why = REFUSED.get(name)
        if why is None and name in OF_SEQUENCES:
            why = _ROWS_COUNT if name in _COUNTS else _OTHER_ROWS
        if why is None:
            why = (
                "is not among the functions of Polars that are known to be row by row (docs, Columns); use stream.map, "
                "or stream.map_batches"
            )
        return self._refused(_shown(name), why)


_CATEGORY = (
    "gives the number that a process gives to a category, another in each; cast to text or to an Enum, which has an "
    "order of its own"
)

_CHILDREN: dict[str, Callable[[Any], Iterable[Node]]] = {
    "Alias": lambda of: of[:1],
    "BinaryExpr": lambda of: (of["left"], of["right"]),
    "Cast": lambda of: (of["expr"],),
    "Ternary": lambda of: (of["predicate"], of["truthy"], of["falsy"]),
    "KeepName": lambda of: (of,),
    "RenameAlias": lambda of: (of["expr"],),
    "Sort": lambda of: (of["expr"],),
    "SortBy": lambda of: (of["expr"], *of["by"]),
    "Gather": lambda of: (of["expr"], of["idx"]),
    "Explode": lambda of: (of["input"],),
    "Filter": lambda of: (of["input"], of["by"]),
    "Slice": lambda of: (of["input"], of["offset"], of["length"]),
}


def _split(node: Any) -> tuple[str, Any]:
    """The name of a node, and what it is of."""
    if isinstance(node, str):
        return node, None
    ((name, of),) = node.items() if isinstance(node, dict) and len(node) == 1 else ((str(node)[:80], None),)
    return name, of


def _input_of(parts: Any) -> Node:
    """What an aggregate is of: its parameters are beside it, in a list or a dict."""
    if isinstance(parts, list):
        return parts[0]
    return parts.get("input", parts.get("expr", parts)) if isinstance(parts, dict) else parts


def _names_of(selector: Any) -> list[str]:
    match selector:
        case {"ByName": {"names": names, "strict": True}}:
            return list(names)
        case {"Union": parts}:
            return [name for part in parts for name in _names_of(part)]
    return []


_VARYING = frozenset(("Column", "Selector", "Field", "Element", "Len"))


def _is_constant(node: Any) -> bool:
    kind, of = _split(node)
    if kind in ("Literal", "DataTypeFunction"):
        return True
    if kind in _VARYING:
        return False
    match kind:
        case "Function":
            return bool(of["input"]) and all(map(_is_constant, of["input"]))
        case "Agg":
            return _is_constant(_input_of(_split(of)[1]))
        case "Eval":
            return _is_constant(of["expr"])
        case _ if kind in _CHILDREN:
            return all(map(_is_constant, _CHILDREN[kind](of)))
    return False


def _is_scalar(node: Node) -> bool:
    kind, of = _split(node)
    return kind == "DataTypeFunction" or (kind == "Literal" and _split(of)[0] in ("Dyn", "Scalar"))


def _in_numbers(target: Any) -> bool:
    """Whether a type to cast to, as it is serialized, has numbers in it, or is not known."""
    text = json.dumps(target)
    return not any(name in text for name in ('"String"', '"Enum"', '"Categorical"'))


def _shown(name: str) -> str:
    """A function as it is written: `str.to_lowercase` for StringExpr.Lowercase, as near as the name tells."""
    space, _, last = name.rpartition(".")
    if last in _WRITTEN:
        last = _WRITTEN[last]
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in last).lstrip("_")
    if space == "Eval":
        return "cumulative_eval"
    return "fill_null(strategy=...)" if space == "FillNullWithStrategy" else f"{_SHOWN.get(space, '')}{snake}"


_WRITTEN = {
    "AnonymousFunction": "map_elements or map_batches",
    "FoldHorizontal": "fold",
    "ReduceHorizontal": "reduce",
    "CumFoldHorizontal": "cum_fold",
    "CumReduceHorizontal": "cum_reduce",
    "RollingExpr": "rolling_...",
    "RollingExprBy": "rolling_..._by",
    "RLE": "rle",
    "RLEID": "rle_id",
    "QCut": "qcut",
    "NUnique": "n_unique",
    "TopK": "top_k",
    "Random": "shuffle or sample",
    "Correlation": "corr or cov",
    "Gather": "gather or get",
    "Slice": "slice, head or tail",
    "Mm3Hash": "mm3_hash",
}

# What depends on the arguments of a function, or on their types: why it is refused, or None.
_Rule = Callable[[_Look, list[Node], Any, _Place, Names], str | None]


def _is_in(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    if names is not OF_ROWS or _is_constant(inputs[1]):
        return None
    if all(isinstance(kind, (pl.List, pl.Array)) for kind in look.kinds(inputs[1], place)[:1]):
        return None
    return f"of a column {_OTHER_ROWS}; for values of the same row compare with ==, or use a column of lists"


def _of_text(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    kind, options = more
    if options["format"] is None and '"Time"' not in json.dumps(kind):
        return "without a format takes it from the first value of a batch; pass format="
    return None


def _physical(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    kinds = [kind for each in inputs for kind in look.kinds(each, place)]
    return _CATEGORY if any(isinstance(kind, pl.Categorical) for kind in kinds) else None


def _bits(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    if any(kind.is_float() for kind in look.kinds(inputs[0], place)):
        return "of floats shows bits that equal values need not have in common; cast to an integer"
    return None


def _ordered(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    if _physical(look, inputs, more, place, names) is None:
        return None
    return "compares categories by the numbers that a process gives to them, another in each; cast to text or an Enum"


def _added(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    kinds = [kind for each in inputs for kind in look.kinds(each, place)]
    if any(kind.is_float() for kind in kinds):
        return (
            "of floats depends on how many threads Polars has, to the last bits; write the sum out, a + b + c, with "
            "fill_null(0.0) where nulls count for nothing"
        )
    return None


def _averaged(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    kinds = [kind for each in inputs for kind in look.kinds(each, place)]
    if any(kind.is_float() or kind in (pl.Int64, pl.UInt64, pl.Int128) or kind.is_decimal() for kind in kinds):
        return (
            "of floats and of 64-bit integers depends on how many threads Polars has, to the last bits; write it out, "
            "(a + b + c) / 3"
        )
    return None


def _in_order(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    return None if more is True else _ORDER


def _not_drawn(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    return _DRAWN if more["options"]["method"] == "Random" else None


def _with_edges(look: _Look, inputs: list[Node], more: Any, place: _Place, names: Names) -> str | None:
    match more:
        case {"breaks": list()} | {"method": {"Intervals": {"spec": {"Breaks": _}}}}:
            return None
    return f"without breaks {_OTHER_ROWS}"


_RULES: dict[str, _Rule] = {
    "Boolean.IsIn": _is_in,
    "Sql.IsIn": _is_in,
    "StringExpr.Strptime": _of_text,
    "ToPhysical": _physical,
    "Reinterpret": _bits,
    **dict.fromkeys(("MaxHorizontal", "MinHorizontal", "Clip", "CumMax", "CumMin"), _ordered),
    "SumHorizontal": _added,
    "MeanHorizontal": _averaged,
    "Unique": _in_order,
    "Rank": _not_drawn,
    "Cut": _with_edges,
    "Bin": _with_edges,
}
