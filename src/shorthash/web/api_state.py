"""Signs of life, metrics, and thumbnails."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from shorthash.images import Collection
from shorthash.web.answers import Json
from shorthash.web.metrics import CONTENT_TYPE, Metrics
from shorthash.web.schema import Health, problems
from shorthash.web.service import Service
from shorthash.web.settings import Settings

__all__ = ["state_router"]

FOREVER = "private, max-age=31536000, immutable"  # a content never changes; private: photographs stay with the viewer
Content = Annotated[
    str, Path(pattern="^[0-9a-f]{32}$", description="Hash of the image's content.", examples=["0" * 32])
]


def state_router(collection: Collection, settings: Settings, service: Service, metrics: Metrics) -> APIRouter:
    """The routes that watch."""
    router = APIRouter(tags=["api"], default_response_class=Json)

    @router.get("/healthz", summary="Sign of life", responses={200: {"model": Health}, **problems()})
    async def healthz() -> Json:
        """That the server lives, and what it serves."""
        return Json(
            {
                "status": "ok",
                "items": len(collection),
                "n_bits": collection.n_bits,
                "n_features": collection.n_features,
                "takes_images": collection.takes_images,
                "writable": settings.writable and not collection.readonly,
            }
        )

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
    )
    async def show_metrics() -> Response:
        """Requests, times and sizes in Prometheus' text format."""
        n_buckets = len(await service.run(collection.buckets))
        return Response(metrics.text(len(collection), n_buckets, collection.n_bits), media_type=CONTENT_TYPE)

    @router.get(
        "/thumbnails/{content}.jpg",
        summary="A thumbnail",
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "The browser has it already."},
            **problems(404, 422),
        },
    )
    async def thumbnail(request: Request, content: Content) -> Response:
        """A small JPEG of an image."""
        octets = await service.run(lambda: _octets(collection, content))
        headers = {"Cache-Control": FOREVER, "ETag": f'"{content}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(octets, media_type="image/jpeg", headers=headers)

    return router


def _octets(collection: Collection, content: str) -> bytes:
    path = collection.thumbnail(content)
    try:
        if path is not None:
            return path.read_bytes()
    except OSError:  # it went between the two lines
        pass
    raise HTTPException(404, "There is no such thumbnail; its item may have been removed.")
