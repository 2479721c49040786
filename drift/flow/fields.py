"""Fields of payloads in place of functions: keys and what is aggregated.

Invariant: a field's name stands for the function that reads it from a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from drift.operators import _ByValue
from drift_graph.errors import GraphError
from drift_graph.functions import LibraryFunction, brief, caller, check_function, field_of, is_expression, name_of
from drift_graph.moments import Field
from drift_graph.policies import TimePolicy


@dataclass(frozen=True)
class Fields(LibraryFunction):
    """A function that reads several fields of a payload, as a tuple."""

    #: It has no line of its own for messages.
    is_field = True

    fields: tuple[Field, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return tuple(each.path for each in self.fields)

    def __post_init__(self) -> None:
        object.__setattr__(self, "__qualname__", f"fields {', '.join(each.path for each in self.fields)}")

    def __call__(self, payload: Any) -> tuple[Any, ...]:
        return tuple(each(payload) for each in self.fields)


@dataclass(frozen=True)
class Written(LibraryFunction):
    """An expression of Polars as the user has written it, until the fields of the rows are known.

    Attributes:
        taker: what takes it, for messages.
        where: the line of the user.
    """

    is_field = True

    given: Any
    taker: str
    where: str

    def __call__(self, payload: Any) -> Any:
        raise GraphError(
            f"{self.taker} (at {self.where}) takes an expression where the fields of the rows are known only: in "
            f"windows, running and at_end of a stream with a schema; elsewhere compute it as a field, with_columns"
        )


class HasValue(_ByValue, frozen=True):
    """Whether a field of a payload has a value, which None is not."""

    of: Field

    def __call__(self, payload: Any) -> bool:
        return self.of(payload) is not None


class NeedsValue(_ByValue, frozen=True):
    """A function whose None is an error: of an aggregate with `nulls="error"`."""

    user_function: Callable[[Any], Any]
    taker: str

    @property
    def paths(self) -> Sequence[str] | None:
        """The fields that it reads."""
        return names_of(self.user_function)

    def __call__(self, payload: Any) -> Any:
        value = self.user_function(payload)
        if value is None:
            raise ValueError(
                f"{self.taker} of {name_of(self.user_function)} is None of {brief(payload, 300)}, with nulls='error': "
                f"give the row a value, filter it before, or leave nulls='skip', which leaves None out"
            )
        return value


def function_of(taker: str, given: Any, kind: str = "a function or the name of a field") -> Callable[[Any], Any]:
    """A function, or the one that reads the field of this name.

    Raises:
        GraphError: it is neither.
    """
    found = named_field(given)
    if found is given:
        check_function(taker, given, kind)
    return found


def named_field(given: Callable[[Any], Any] | str) -> Callable[[Any], Any]:
    """The function that reads the field of this name; what is no name as it is, for whoever checks it."""
    return Field(given) if isinstance(given, str) and given else given  # type: ignore[return-value]


def key_of(key: Any, *more: str) -> Callable[[Any], Any]:
    """The function that gives the key: a function, or what reads the fields of these names.

    Raises:
        GraphError: it is neither.
    """
    first = function_of("key_by", key, "a function that gives the key, or names of fields")
    if not more:
        return first
    if not all(isinstance(each, str) and each for each in (key, *more)):
        raise GraphError(f"key_by takes one function, or names of fields, not {(key, *more)!r:.80} (at {caller()})")
    return Fields(tuple(map(Field, (key, *more))))


def bound(value: Any, bind: Callable[[Any, str], Any]) -> Any:
    """An aggregate, or a part of one, with functions in place of the expressions in it.

    Args:
        bind: makes the function for an expression, and gets the line of the user as well; of what reads fields, for
            which the line is "", it returns the function itself.
    """
    if type(value) is Written:
        return bind(value.given, value.where)
    if type(value) in (Field, Fields):
        return bind(value, "")
    if type(value) is tuple:
        return tuple(bound(each, bind) for each in value)
    if not isinstance(value, _ByValue):
        return value
    parts = {name: getattr(value, name) for name in value.__struct_fields__}
    made = {name: bound(part, bind) for name, part in parts.items()}
    return msgspec.structs.replace(value, **made) if any(made[name] is not parts[name] for name in parts) else value


def check_fields(fields: Any, function: Callable[[Any], Any], what: str, where: Callable[[], str]) -> None:
    """Check that rows have what a function reads.

    Args:
        fields: of the rows, names and types; None if they are not known.
        where: gives the line of the user.

    Raises:
        GraphError: they have not.
    """
    known = dict(fields or ())
    for name in (names_of(function) or ()) if fields is not None else ():
        if name not in known and name.split(".")[0] not in known:
            from drift.columns.expressions import unknown_field

            raise unknown_field(f"{what} (at {where()})", name, known)


def policy_of_fields(policy: TimePolicy, fields: Any, what: str, where: str) -> TimePolicy:
    """A time policy with functions of rows in place of the expressions in it."""
    for role, function in policy.functions.items():
        check_fields(fields, function, f"EventTime({role}=...) of {what}", lambda: where)
    given: dict[str, Any] = {role: each for role, each in policy.functions.items() if is_expression(each)}
    if not given:
        return policy
    if fields is None:
        raise GraphError(f"{what} (at {where}) has a time policy with an expression, and no schema= with the fields")
    from drift.columns.computed import computed

    return policy.with_functions({role: computed(fields, each, where) for role, each in given.items()})


def names_of(function: Callable[[Any], Any]) -> Sequence[str] | None:
    """The names of the fields that a function reads; None for one that does anything else."""
    return field_of(function, "paths")  # type: ignore[no-any-return]


def not_in_columns(
    key: Callable[[Any], Any] | None,
    aggregates: Mapping[str, Any] | None = None,
    in_columns: Callable[[Any], object] = attrgetter("in_columns"),
) -> str:
    """Why rows of a key are not aggregated in columns, as a clause; "" if they are.

    Args:
        key: None if all rows have one key.
        aggregates: by the names of their values.
    """
    if key is not None and names_of(key) is None:
        return f"its key, {name_of(key)}, is no field"
    others = [name for name, each in (aggregates or {}).items() if in_columns(each) is None]
    if not others:
        return ""
    named = ", ".join(filter(None, others)) or "what it aggregates"
    return f"{named} is not count, sum, mean, min or max of a field"
