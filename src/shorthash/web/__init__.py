"""A server for one collection: a JSON API, metrics, and a page to search on.

In: a collection and its limits. Out: a FastAPI application (``create_app``); ``shorthash serve`` runs it.
"""

from shorthash._validation import require_extra

for _module in ("fastapi", "python_multipart", "orjson", "prometheus_client"):
    require_extra(_module, "web", "Serving a collection")

from shorthash.web.app import create_app  # noqa: E402
from shorthash.web.limits import Settings  # noqa: E402

__all__ = ["Settings", "create_app"]
