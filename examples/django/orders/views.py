"""``POST /orders`` with ``cents``: the order and its job are accepted together, or neither is."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from orders.jobs import charge
from orders.models import Order


@csrf_exempt
def place(request: HttpRequest) -> JsonResponse:
    """Negative ``cents`` are refused after the push: the rollback takes the job along."""
    try:
        with transaction.atomic():
            order = Order.objects.create(cents=int(request.POST["cents"]))
            handle = charge.enqueue(order.pk, float(request.POST.get("seconds", 0)))
            if order.cents < 0:
                raise ValueError("nobody orders for less than nothing")
    except ValueError as error:
        return JsonResponse({"error": str(error), "problem": handle.problem}, status=400)
    return JsonResponse({"order": order.pk, "job": handle.jid, "admission": handle.admission}, status=201)


def show(request: HttpRequest, number: int) -> JsonResponse:
    """What became of an order."""
    return JsonResponse({"receipt": Order.objects.get(pk=number).receipt})
