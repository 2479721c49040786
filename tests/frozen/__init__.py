"""The oracle: drawn graphs with their inputs, and what each of them gave when it was frozen.

Invariant: a case is a function of its name alone, in every version of Python and of every library; what it gave is
written once, in `outputs.jsonl`, and never again.

`catalogue.py` and `cases.py` have the graphs, `inputs.py` what their sources give, `functions.py` the functions in the
graphs, `draw.py` where drawn numbers are from, and `runs.py` the ways to run a case. `python -m frozen.freeze`, in the
folder `tests`, writes what new cases give; it refuses where a case that is there gives something else.
"""
