"""Breakages of how values, rows and lines are read."""

from __future__ import annotations

from broken import Breakage, one

SAME = ("tests/rows/test_same_values.py",)
TABLES = ("tests/sources/test_tables_diverted.py",)
LOCAL = ("tests/core/test_local_times.py",)
PACKED = ("tests/sources/test_compressed.py",)
NO_READERS = "the harness reads no texts, tables or files"

_VALUES, _JSON, _ROWS = "drift/columns/values.py", "drift/sources/json_values.py", "drift/sources/json_rows.py"
_ARROW, _TABLE, _MOMENTS = "drift/arrow.py", "drift/sources/rows.py", "graph/drift_graph/moments.py"
_COMPRESSED = "drift/sources/compressed.py"
_WHOLE = "drift/engines/whole.py"
_ROTATED = "drift/sources/rotated.py"


def broken(file: str, tests: tuple[str, ...], *edits: tuple[str, str, str]) -> list[Breakage]:
    return [one(name, file, old, new, tests, NO_READERS) for name, old, new in edits]


BREAKAGES = [
    *broken(
        _TABLE,
        (*TABLES, "-k", "stay_columns"),
        ("dicts of a table are no columns", 'if payload != "dict"', 'if payload == "dict"'),
        ("a column that rows have not is an error", '        return "dict"\n', "        raise\n"),
    ),
    *broken(
        "drift/sources/positions.py",
        ("tests/sources/test_sources_followed.py", "-k", "wherever_a_named"),
        (
            "a batch does not go on at the end of a file that was followed",
            'position.get("end") if within',
            "within if within",
        ),
    ),
    *broken(
        "drift/sources/files.py",
        ("tests/sources/test_sources_followed.py", "-k", "wherever_a_named"),
        ("a batch refuses a followed file of which nothing was read", "if position == {}:", "if False:"),
    ),
    *broken(
        _ROTATED,
        ("tests/sources/test_sources_followed.py", "-k", "wherever_a_named"),
        ("a packed file that is followed was rotated at its end", "before is None and self._at_end", "False"),
    ),
    *broken(
        _VALUES,
        ("tests/rows/test_same_values.py", "-k", "through_every_reader and Decimal"),
        ("a decimal has two zeros", "found if found else found.copy_abs()", "found"),
    ),
    *broken(
        _ROTATED,
        ("tests/sources/test_sources_followed.py", "-k", "rotated or renamed or removed_unread"),
        (
            "a renamed file ends before something is behind it",
            "not any(each.size for each in pieces[",
            "not any(pieces[",
        ),
        ("a piece that is gone is passed over", "before_it - piece.number != 1", "False"),
        ("pieces are read the newest first", "-number if number is not None", "number if number is not None"),
    ),
    *broken(
        _WHOLE,
        ("tests/sources/test_sources_whole.py",),
        ("what is sorted as a whole is not", "sorted(range(len(times)), key=times.__getitem__)", "range(len(times))"),
        ("sorted runs are merged beyond the first end", "bound = min(block", "bound = max(block"),
        (
            "what has no time comes first, where all is sorted",
            "times.append(self._greatest if time is None else time)",
            "times.append(TIME_MIN if time is None else time)",
        ),
        ("other input is sorted without a word", 'self._end() != sought["end"]', "False"),
        ("a run goes on at the first item of what is sorted", "if self._sought is not None:\n", "if False:\n"),
    ),
    *(
        one(
            name,
            "drift/sources/" + file,
            old,
            new,
            ("tests/sources/test_sources_positions.py", "-k", "known_by_its_content"),
            "its sources are no folders",
        )
        for name, file, old, new in (
            (
                "files of a folder are known by their sizes",
                "paths.py",
                'if "mark" in position:',
                "if False:",
            ),
            (
                "the last file of a followed folder is known by its size",
                "followed.py",
                "if done is not None and not is_marked(self._files, *done):",
                "if False:",
            ),
            (
                "positions from before files had marks are refused",
                "paths.py",
                """        if "mark" in position:
            mark = Mark(*position["mark"])""",
                """        if True:
            mark = Mark(*position.get("mark", ("", "")))""",
            ),
            (
                "a file that was touched is another one",
                "known.py",
                "changed_of(path) == self.changed or content_of(path) == self.content",
                "changed_of(path) == self.changed",
            ),
            (
                "a file is known by parts of it",
                "known.py",
                'return f"{of.st_mtime_ns} {found.hexdigest()}"',
                "return found.hexdigest()",
            ),
            (
                "what was hashed is forgotten where a reader goes on",
                "paths.py",
                """            self._content = mark.content
            self._unhashed.clear()
""",
                """            self._unhashed.clear()
""",
            ),
            (
                "a Parquet file is known by its footer",
                "parquet.py",
                "identity != self._identity or (mark and not Mark(*mark).is_of(self._path))",
                "identity != self._identity",
            ),
        )
    ),
    *broken(
        _VALUES,
        SAME,
        (
            "digits of a moment are cut off",
            '    if is_too_exact(text):\n        raise ValueError("it has more of a second than microseconds; t',
            '    if False:\n        raise ValueError("it has more of a second than microseconds; t',
        ),
        (
            "digits of a time of a day are cut off",
            '    if is_too_exact(text):\n        raise ValueError("it has more of a second than microseconds")',
            '    if False:\n        raise ValueError("it has more of a second than microseconds")',
        ),
        (
            "the zone of a time of a day is cut off",
            '    if found.tzinfo is not None:\n        raise ValueError("a time of a day has no zone")',
            "    found = found.replace(tzinfo=None)",
        ),
        ("a decimal is rounded", "    if found != value:\n", "    if False:\n"),
        (
            "a moment loses its zone",
            "    if (found.tzinfo is not None) != (kind.time_zone is not None):\n",
            "    if False:\n",
        ),
        ("a moment with a zone needs none", "{'Z' if kind.time_zone else ''}$", "Z?$"),
        ("there is a year 0", "return None if (found.dt.year() == 0).any() else found", "return found"),
        (
            "a float is the nearest of an integer",
            "    if type(number) is int and int(value) != number:\n",
            "    if False:\n",
        ),
        ("an infinite number is read", "    if math.isinf(value):\n", "    if False:\n"),
        ("a small float is the nearest", "        if narrow != value:\n", "        if False:\n"),
        ("small floats at once are the nearest", "    return narrow if same.all() else None\n", "    return narrow\n"),
        (
            "floats at once are the nearest of integers",
            "if greatest is not None and greatest >= FLOAT_INTEGERS:",
            "if False:",
        ),
        (
            "milliseconds at once are cut off",
            '        if not found.cast(pl.Datetime("us")).equals(in_us):\n',
            "        if False:\n",
        ),
        ("parts of a millisecond are cut off", "    if number_us % _UNIT_US[unit]:\n", "    if False:\n"),
        ("nanoseconds have no end", '    if unit == "ns" and not -_NS_US < number_us < _NS_US:\n', "    if False:\n"),
        (
            "bytes are read as far as they are base64",
            "    if binascii.b2a_base64(found, newline=False).decode() != text:\n",
            "    if False:\n",
        ),
        ("an array is of any length", "        if size >= 0 and len(found) != size:\n", "        if False:\n"),
        (
            "a struct is of any fields",
            "        if _of_class(value, dict).keys() != items.keys():\n",
            "        if not _of_class(value, dict).keys() >= items.keys():\n",
        ),
    ),
    *broken(
        _JSON,
        SAME,
        ("a key may be there twice", "    if len(found) < len(pairs):\n", "    if False:\n"),
        ("keys are counted with those in texts", ".sum() == count and (before > _SPACE).all())", ".sum() >= count)"),
        ("a space in front of a colon hides a key", " and (before > _SPACE).all())", ")"),
        (
            "no integer is large",
            '    return b":0000000000000000" in found or found.startswith(b"0000000000000000")\n',
            "    return False\n",
        ),
        ("a sample of digits begins late", "[::_SAMPLED] - _ZERO", "[30::_SAMPLED] - _ZERO"),
        (
            "no time is too exact for a type",
            "    return bool((found[at + 7] - _ZERO < 10).any())\n",
            "    return False\n",
        ),
        (
            "what a type loses is not asked for one text",
            "        if self._typed is not None and (why := self._typed.lost(plain)):\n",
            "        if False:\n",
        ),
        (
            "what a type loses is not asked within lists",
            "        for at, (kind, each) in enumerate(zip(kinds, value)):\n",
            "        for at, (kind, each) in enumerate(()):\n",
        ),
        (
            "what a type loses is not asked within dicts",
            '                yield from _lost(info.value_type, each, f"{where}.{key}")\n',
            "",
        ),
        ("an object is of each type of a union", "value.get(tag) != kind.tag:", "False:"),
    ),
    *broken(
        _ROWS,
        SAME,
        ("a value may be of several lines", " or data.count(end) != lines - 1:\n", ":\n"),
        (
            "keys of rows are not counted",
            "if not has_keys(data, len(values) * len(self._fields)) and may_repeat_keys([data], values):",
            "if False:",
        ),
        ("integers are floats before they are looked at", "return self._careful if", "return self._decoder if"),
    ),
    *broken(
        "drift/sources/json_lines.py",
        SAME,
        ("lines behind a bad half are not read", "parts += [(half, end), (start, half)]", "parts += [(start, half)]"),
    ),
    one(
        "messages are not read as rows",
        "drift/sources/polled.py",
        "isinstance(source.decode, Values) and source.decode.is_plain",
        "False",
        SAME,
        NO_READERS,
    ),
    one(
        "a moment in the zone of its field is refused",
        "drift/columns/expressions.py",
        "return value.astimezone(datetime.UTC) if in_own else value",
        "return value",
        SAME,
        NO_READERS,
    ),
    *broken(
        _TABLE,
        TABLES,
        (
            "rows beside a bad one have what it has in lists",
            "    return pa.ipc.open_stream(written.getvalue()).read_next_batch()\n",
            "    return rows\n",
        ),
        (
            "rows behind a bad half are not read",
            "parts += [(start + half, count - half), (start, half)]",
            "parts += [(start, half)]",
        ),
        (
            "a diverted row has the number of the one before",
            "nth = self._returned + len(payloads) + 1",
            "nth = self._returned + len(payloads)",
        ),
    ),
    *broken(
        _ARROW,
        TABLES,
        ("texts of rows are not looked at", "            column.validate(full=True)\n", "            pass\n"),
        ("what is nested is not looked at", "            check_values(part)\n", "            pass\n"),
        ("years have no end", "        if least is not None and not bounds[0]", "        if False and not bounds[0]"),
        ("periods are numbers", "        if of in _NUMBERED:\n", "        if False:\n"),
        ("booleans in bytes are numbers", 'return pa.bool_() if kind.extension_name == "arrow.bool8" else', "return"),
    ),
    one(
        "an index is lost",
        "drift/sources/tables.py",
        "            _check_index(frame.index)\n",
        "            pass\n",
        TABLES,
        NO_READERS,
    ),
    *broken(
        _MOMENTS,
        LOCAL,
        (
            "the first of two is taken",
            'if first > second or (first < second and ambiguous == "error" and not moment.fold):',
            "if first > second:",
        ),
        ("a time that clocks never show is one", "if first > second or (first < second", "if (first < second"),
        ("fold says nothing", '(moment.fold if by_fold else ambiguous == "latest")', '(ambiguous == "latest")'),
        ("a zone of pytz is what `replace` makes of it", "return zone_from(name) if name else value", "return value"),
    ),
    *broken(
        _COMPRESSED,
        PACKED,
        (
            "a member without an end is whole",
            '                elif not self._left:\n                    raise EOFError("a member has no end")\n',
            '                elif not self._left:\n                    return b""\n',
        ),
        (
            "the first member is all",
            '                self._left, self._member = self._member.unused_data.lstrip(b"\\0"), None\n',
            '                return b""\n',
        ),
        ("the first file of a zip is all", "iter(self.files)", "iter(self.files[:1])"),
        (
            "of two files with one name in a zip one is read twice",
            "self._file = self._archive.open(file)",
            "self._file = self._archive.open(file.filename)",
        ),
        (
            "what is in front of a fault is lost",
            '            if pieces:\n                return b"".join(pieces)\n',
            "",
        ),
    ),
    one(
        "a packed file of no bytes is empty",
        "drift/sources/chunks.py",
        'if first == b"" or (first is None and self._size == 0):',
        "if False:",
        PACKED,
        NO_READERS,
    ),
]
