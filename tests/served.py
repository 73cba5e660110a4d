"""A server in this process, and the token that it takes."""

from fastapi.testclient import TestClient

from shorthash.web import Settings, create_app

TOKEN = "a-token-of-many-letters"
SECRET = "hidden-folder"  # part of every path; it must never leave the server


def allowed(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


def client_of(collection, **settings):
    """A client whose errors are answers, as they are for strangers."""
    limits = {"rate": 0, "token": TOKEN, **settings}
    app = create_app(collection, Settings(**limits))
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
