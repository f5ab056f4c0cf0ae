"""``python -m conovel``: the command line."""

from conovel.cli import main

if __name__ == "__main__":
    main()
