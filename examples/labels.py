"""Labels texts with a language model, and counts labels; the model is asked once about each text, whatever happens.

    python examples/labels.py http://127.0.0.1:8000/v1/chat/completions model-name labels.state

Anything that speaks the chat completions interface will do. A second run with the same state, with another model too,
asks only what was not answered. The graph has a stub: `--calls stub` of `drift run` asks no model.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import drift

TEXTS = [
    "The parcel came two weeks late.",
    "Thank you, it works well.",
    "How do I change my address?",
    "It broke on the first day.",
    "Is there a larger one?",
]
PROMPT = "Answer with one word, complaint, praise or question: what is this? "


def model(url: str, name: str) -> Any:
    """A function that asks a language model for the label of a text."""

    def label(text: str, call: drift.Call) -> dict[str, str]:
        asked = {"model": name, "messages": [{"role": "user", "content": PROMPT + text}]}
        headers = {"Content-Type": "application/json", "Idempotency-Key": call.key}
        request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request) as response:
            said = json.load(response)["choices"][0]["message"]["content"]
        return {"text": text, "label": said.strip().lower().rstrip(".")}

    return label


def stub(text: str) -> dict[str, str]:
    """In place of a model, with calls="stub"."""
    return {"text": text, "label": "question" if text.endswith("?") else "praise" if "Thank" in text else "complaint"}


def made(ask: Any) -> drift.Graph:
    graph = drift.Graph("labels")
    labelled = graph.source("texts").call(ask, concurrency=8, timeout_s=60, on_error="divert", stub=stub, name="label")
    labelled.sink("labelled")
    labelled.count(lambda text: text["label"]).sink("counts")
    return graph


graph = made(model("http://127.0.0.1:8000/v1/chat/completions", "any"))

if __name__ == "__main__":
    url, name, state = sys.argv[1:]
    for item in drift.run(made(model(url, name)), {"texts": TEXTS}, state=state):
        print(item.sink, item.payload)
