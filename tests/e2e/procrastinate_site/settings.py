"""Its settings: the gate takes one line."""

import os

from psycopg.conninfo import conninfo_to_dict

from tests.e2e.procrastinate_tasks import DSN

_database = conninfo_to_dict(os.environ[DSN])

SECRET_KEY = "none"  # nothing here is signed
USE_TZ = True
INSTALLED_APPS = ["procrastinate.contrib.django", "tests.e2e.procrastinate_site"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database["host"],
        "USER": _database["user"],
        "NAME": _database["dbname"],
    }
}
PROCRASTINATE_ON_APP_READY = "procrastinate_gate.install"
