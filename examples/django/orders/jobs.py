"""What is done after the answer."""

import time

from henchman import current_job
from henchman.contrib.django import app
from orders.models import Order


@app.job(result_ttl=3600)
def charge(number: int, seconds: float = 0.0) -> str:
    """Charge an order, once: the run after a crash finds what the one before it wrote."""
    print(f"charging order {number}, attempt {current_job().attempt}", flush=True)
    time.sleep(seconds)  # the bank takes its time
    order = Order.objects.get(pk=number)
    if not order.receipt:
        order.receipt = f"{order.cents} cents for order {number}"
        order.save(update_fields=["receipt"])
    return order.receipt
