"""Where an output item comes from: every item that had a part in it, back to the input."""

from drift.lineage.given import Input, InputBatch
from drift.lineage.lineage import Lineage, Made, lineage_of

__all__ = ["Input", "InputBatch", "Lineage", "Made", "lineage_of"]
