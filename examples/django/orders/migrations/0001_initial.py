"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("cents", models.IntegerField()),
                ("receipt", models.CharField(max_length=60, default="")),
            ],
        ),
    )
