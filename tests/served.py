"""A server in this process, and its token."""

from fastapi.testclient import TestClient

from shorthash.web import Settings, create_app

TOKEN = "a-token-of-many-letters"
SECRET = "hidden-folder"  # part of every path; no answer may contain it


def allowed(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


def client_of(collection, **settings):
    """A client that gets server errors as answers."""
    limits = {"rate": 0, "token": TOKEN, **settings}
    app = create_app(collection, Settings(**limits))
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
