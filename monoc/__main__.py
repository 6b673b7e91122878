"""``python -m monoc``."""

from monoc.cli import main

main()
