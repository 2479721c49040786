"""What can be proved with a record: that it is intact, that it can be reproduced, and what its items were made of.

It reads what `drift.records` wrote, and runs it again; records do not depend on it.
"""

from drift.auditing.lineage import Lineage, Made, lineage_of
from drift.auditing.trace import Input, InputBatch

__all__ = ["Input", "InputBatch", "Lineage", "Made", "lineage_of"]
