"""Servers: for one collection a JSON API, metrics and a page to search on; for a store a JSON API without state.

In: a collection or a store, and limits. Out: a FastAPI application (``create_app``, ``create_store_app``), which
``shorthash serve`` runs.
"""

from shorthash._validation import require_extra

for _module in ("fastapi", "python_multipart", "orjson", "prometheus_client", "uvicorn", "httptools"):
    require_extra(_module, "web", "Serving a collection")

from shorthash.web.app import create_app, create_store_app  # noqa: E402
from shorthash.web.limits import Settings  # noqa: E402

__all__ = ["Settings", "create_app", "create_store_app"]
