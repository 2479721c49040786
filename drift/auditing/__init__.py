"""What is proved with a record: that it is intact, gives the same again, and what its items were made of.

It reads what `drift.records` keeps, and runs it again: records know nothing of it.
"""

from drift.auditing.inputs import Input, InputBatch
from drift.auditing.lineage import Lineage, Made, lineage_of

__all__ = ["Input", "InputBatch", "Lineage", "Made", "lineage_of"]
