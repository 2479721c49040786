"""Where items come from. Any iterable is a source as it is; these read files and live connections."""

from drift.sources.base import IterableSource, Reader, Source, as_source

__all__ = ["IterableSource", "Reader", "Source", "as_source"]
