"""Found by procrastinate, which looks for tasks in every Django app."""

from procrastinate.contrib.django import app

from tests.e2e.procrastinate_tasks import blueprint

app.add_tasks_from(blueprint, namespace="e2e")
