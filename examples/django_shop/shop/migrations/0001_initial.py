"""Orders; the schema of Redrive comes first, because placing one needs it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = [("redrive", "0001_redrive_0_1_0")]
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                ("item", models.CharField(max_length=100)),
                ("confirmed_at", models.DateTimeField(null=True)),
            ],
        ),
    ]
