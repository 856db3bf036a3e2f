"""An endpoint that takes orders, and the admin with the console."""

from django.contrib import admin
from django.urls import path
from orders.views import place, show

urlpatterns = [path("admin/", admin.site.urls), path("orders", place), path("orders/<int:number>", show)]
