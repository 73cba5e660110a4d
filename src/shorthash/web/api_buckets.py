"""/buckets: codes that occur, and the items that share one."""

from bisect import bisect_left
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from shorthash.images import Bucket, Collection
from shorthash.web.answers import Json, bits_of, item_value
from shorthash.web.schema import BucketList, BucketPage, problems
from shorthash.web.service import Service

__all__ = ["buckets_router"]

MOST_BUCKETS, MOST_ITEMS = 1 << 16, 1000
Offset = Annotated[int, Query(ge=0, le=1 << 62, description="How many to skip.")]
ItemLimit = Annotated[int, Query(ge=0, le=MOST_ITEMS, description="How many items to show.")]
BucketLimit = Annotated[int, Query(ge=1, le=MOST_BUCKETS, description="How many buckets to list.")]


def buckets_router(collection: Collection, service: Service) -> APIRouter:
    """The routes of buckets."""
    router = APIRouter(tags=["api"], default_response_class=Json)
    in_range = Path(ge=0, le=(1 << collection.n_bits) - 1, description="A code as an integer.", examples=[0])

    @router.get("/buckets", summary="List buckets", responses={200: {"model": BucketList}, **problems(422)})
    async def buckets(offset: Offset = 0, limit: BucketLimit = MOST_BUCKETS) -> Json:
        """Every code that occurs, ascending, with its load and its items by class."""
        found = await service.run(collection.buckets)
        shown = [_value(bucket) for bucket in found[offset : offset + limit]]
        return Json({"n_bits": collection.n_bits, "count": len(found), "buckets": shown})

    @router.get("/buckets/{code}", summary="Show a bucket", responses={200: {"model": BucketPage}, **problems(422)})
    async def bucket(code: Annotated[int, in_range], offset: Offset = 0, limit: ItemLimit = 100) -> Json:
        """Items that share a code; a code that does not occur is an empty bucket."""
        return Json(await service.run(lambda: _page(collection, service, code, offset, limit)))

    return router


def _page(collection: Collection, service: Service, code: int, offset: int, limit: int) -> dict[str, Any]:
    known = collection.buckets()
    place = bisect_left(known, code, key=lambda bucket: bucket.code)
    there = known[place] if place < len(known) and known[place].code == code else Bucket(code, 0)
    ids = collection.bucket(code)[offset : offset + limit]
    items = [item_value(item, collection.n_bits) for item in service.items(ids.tolist())]
    return {**_value(there), "bits": bits_of(code, collection.n_bits), "offset": offset, "items": items}


def _value(bucket: Bucket) -> dict[str, Any]:
    return {"code": bucket.code, "load": bucket.load, "classes": {str(c): n for c, n in bucket.classes.items()}}
