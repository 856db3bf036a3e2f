"""The demo's pushing side: ``python -m henchman.process.demo_push [ROWS]`` enqueues the product file, row by row.

It is a process of its own, as a web server would be: it knows the app and the server's address and nothing else.
"""

from __future__ import annotations

import sys

from henchman.process.demo_jobs import import_product
from henchman.process.demo_products import read


def main(arguments: list[str]) -> int:
    """Enqueue the first ROWS rows of the file, or all of them."""
    most = int(arguments[0]) if arguments else None
    pushed = import_product.enqueue_many((row,) for row in read(most=most))
    print(pushed.count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
