#!/usr/bin/env bash
# Over HTTP a server that refuses or is broken is, for fsspec, a file that is not there
#
# Versions: fsspec==2026.9.0 aiohttp==3.14.5
# Expected: exists() is False for 404, and 401, 403, 429, 500 and 503 raise errors that say so.
# Seen:     exists() and isfile() are False for all of these; info(), size() and open() raise FileNotFoundError; cat()
#           and ls() of the same address raise ClientResponseError with the status, and FileNotFoundError for 404 alone.
# Matters:  'if it is not there, write it anew' and 'no file, so begin from the start' then follow from a server that is
#           busy; only what reads the content tells the two apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check fsspec==2026.9.0 aiohttp==3.14.5
venv/bin/python - <<'EOF'
import http.server
import threading

import fsspec
from aiohttp import ClientResponseError


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers each request with the status in its path."""

    def do_GET(self):
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"text")

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


def raised(function, path):
    try:
        function(path)
    except Exception as error:
        return type(error)
    return None


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
files = fsspec.filesystem("http")
at = f"http://127.0.0.1:{server.server_port}"
assert files.exists(f"{at}/200/a") and files.cat(f"{at}/200/a") == b"text"
for status in (401, 403, 404, 429, 500, 503):
    path = f"{at}/{status}/a"
    assert files.exists(path) is False and files.isfile(path) is False, status
    for function in (files.info, files.size, files.open):
        assert raised(function, path) is FileNotFoundError, (status, function)
    of_content = FileNotFoundError if status == 404 else ClientResponseError
    assert raised(files.cat, path) is of_content and raised(files.ls, path) is of_content, status
server.shutdown()
print("as described")
EOF
