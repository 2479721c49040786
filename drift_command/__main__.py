"""`python -m drift_command` is the `drift` command."""

from drift_command import main

main()
