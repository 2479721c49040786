#!/usr/bin/env bash
# Two .zst files one after the other: half of the readers stop at the seam, silently
#
# Versions: zstandard==0.25.0 pyarrow==26.0.1 polars==2.1.0
# Expected: files of zstd may be concatenated, as those of gzip may, so every reader gives all of it.
# Seen:     ZstdDecompressor().decompress() gives the first frame and says nothing; stream_reader() and open() of the
#           same package, Arrow and Polars give both.
# Matters:  logs that are rotated and appended are such files; a short day is no error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check zstandard==0.25.0 pyarrow==26.0.1 polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl
import pyarrow as pa
import zstandard

packed = b"".join(map(zstandard.ZstdCompressor().compress, (b"n\n1\n2\n", b"3\n")))
with open("numbers.csv.zst", "wb") as file:
    file.write(packed)
assert zstandard.ZstdDecompressor().decompress(packed) == b"n\n1\n2\n"
with zstandard.open("numbers.csv.zst") as file:
    assert file.read() == b"n\n1\n2\n3\n"
assert pa.CompressedInputStream("numbers.csv.zst", "zstd").read() == b"n\n1\n2\n3\n"
assert pl.read_csv("numbers.csv.zst")["n"].to_list() == [1, 2, 3]
print("as described")
EOF
