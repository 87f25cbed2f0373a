"""`python -m litehouse` is the `litehouse` command."""

from litehouse.cli import main

main()
