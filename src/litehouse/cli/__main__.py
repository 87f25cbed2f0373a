"""`python -m litehouse.cli` is the `litehouse` command."""

from litehouse.cli import main

main()
