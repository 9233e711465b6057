"""`python -m omnistage.runtime`: the command line."""

from .cli import main

main()
