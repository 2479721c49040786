#!/usr/bin/env bash
# The bytes of an Arrow buffer through a memoryview: signed, so those from 0x80 on are equal to no bytes
#
# Versions: pyarrow==26.0.1 pyarrow==25.0.0
# Expected: a memoryview of a buffer is one of bytes, as of `bytes`, numpy's uint8 or an mmap: numbers from 0 to 255,
#           equal to bytes with the same content.
# Seen:     its format is "b". The buffer itself has 146 at 0, its memoryview -110; the memoryview of ASCII text is
#           equal to the text, and that of other bytes is not, nor is a byte from 0x80 on found in it; what takes the
#           memory as a whole (hashes, join, startswith, find) sees no difference.
# Matters:  a reader that looks at the first byte of a message, or compares a part of it, is right in all tests with
#           text, and takes another branch, without an error, for binary data. `.cast("B")` mends it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
for version in 25.0.0 26.0.1; do
    venv/bin/pip install --quiet --disable-pip-version-check "pyarrow==$version"
    venv/bin/python - <<'EOF'
import hashlib
import mmap

import pyarrow as pa

text, binary = b"abc", b"\x92\xffa"
for made in (pa.py_buffer, lambda data: pa.array([data]).buffers()[2]):
    assert memoryview(made(text)) == text
    buffer = made(binary)
    view = memoryview(buffer)[: len(binary)]
    assert (view.format, view[0], buffer[0]) == ("b", -110, 0x92), (view.format, view[0], buffer[0])
    assert view != binary and 0x92 not in view and -110 in view
    assert view.cast("B") == binary and view.tobytes() == binary
    assert hashlib.sha256(view).digest() == hashlib.sha256(binary).digest()
    assert binary.startswith(view[:1]) and binary.find(view[1:2]) == 1
with mmap.mmap(-1, len(binary)) as mapped:
    mapped.write(binary)
    with memoryview(mapped) as view:
        assert view.format == "B" and view == binary
EOF
done
echo "as described"
