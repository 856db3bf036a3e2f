"""A relay as a process of its own, to be killed: ``python -m support.relay_child REDIS_URL DATABASE_URL``.

It prints ``up`` before its first round, and ends when nothing is left in the outbox and on its way.
"""

from __future__ import annotations

import sys
import time

from henchman.outbox import relay as module
from support.outbox import Shop, relaying

if __name__ == "__main__":
    module.CONFIRM_AFTER, module.TOGETHER = 0.05, 0.0
    module.EVERY, module.EARLY_LOOKS = 0.3, (0.3,)  # what was left behind is swept while the test looks
    shop = Shop(sys.argv[1], sys.argv[2])
    with relaying(shop) as relay:
        print("up", flush=True)
        swept = time.monotonic() + 1.0
        while not relay.leads or relay.on_the_way or shop.count() or time.monotonic() < swept:
            pause = relay.tick()
            time.sleep(min(pause, 0.05))
    shop.close()
    print("done", flush=True)
