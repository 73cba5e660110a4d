"""The OpenAPI schema is exact: answers obey it, and no generated request provokes a server error."""

from hypothesis import HealthCheck, Phase, given, settings
from served import allowed

EXAMPLES = 10
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
ROUTES = {
    "POST /search",
    "POST /items",
    "GET /items/{id}",
    "DELETE /items/{id}",
    "PATCH /items/{id}",
    "GET /buckets",
    "GET /buckets/{code}",
    "GET /healthz",
    "GET /metrics",
    "GET /thumbnails/{content}.jpg",
}

UNBREAKABLE = {
    "GET /healthz",
    "GET /metrics",
    "GET /items/{id}",
    "PATCH /items/{id}",
    "DELETE /items/{id}",
}  # every request obeys the schema


def fuzz(app):
    """Send valid and invalid requests to every operation of the schema; return the labels of the operations."""
    import schemathesis  # takes half a second
    from schemathesis import GenerationMode, checks

    asked = [getattr(checks, name) for name in CHECKS]
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "localhost"})
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        _ask(operation, GenerationMode.POSITIVE, asked)
        if operation.label not in UNBREAKABLE:
            _ask(operation, GenerationMode.NEGATIVE, asked)
    return {operation.label for operation in operations}


def _ask(operation, mode, checks):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        case.call_and_validate(headers={**allowed(), "host": "localhost"}, checks=checks)

    ask()


def test_no_generated_request_of_a_collection_of_pictures_breaks_the_server(api):
    assert fuzz(api.app) == ROUTES


def test_no_generated_request_of_a_collection_of_vectors_breaks_the_server(vector_api):
    assert fuzz(vector_api.app) == ROUTES


def test_the_schema_states_lengths_ranges_and_errors(api, vector_api):
    for client, n_features, largest in ((api, 512, 15), (vector_api, 6, 31)):
        schema = client.get("/openapi.json").json()
        body = schema["paths"]["/search"]["post"]["requestBody"]["content"]
        by_vector, by_id, by_code = body["application/json"]["schema"]["oneOf"]
        assert by_vector["properties"]["vector"]["minItems"] == n_features
        assert by_id["required"] == ["id"]
        assert by_code["properties"]["code"]["anyOf"][0]["maximum"] == largest
        assert ("multipart/form-data" in body) == (client is api)
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                assert operation["summary"]
                assert operation["description"]
                for status in ("429", "503"):
                    assert status in operation["responses"], path
        assert schema["paths"]["/items"]["post"]["security"] == [{"token": []}]
        assert "422" in schema["paths"]["/items"]["post"]["responses"]
        assert "HTTPValidationError" not in schema["components"]["schemas"]
