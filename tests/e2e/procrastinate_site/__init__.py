"""A Django project in miniature, whose worker is `manage.py procrastinate worker`."""
