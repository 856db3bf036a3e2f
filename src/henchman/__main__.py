"""``python -m henchman``: the same as the command ``henchman``."""

from henchman.cli.main import main

if __name__ == "__main__":
    main()
