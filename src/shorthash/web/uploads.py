"""Bodies of requests: JSON or multipart, told apart strictly; files stay in memory and lose their folders."""

from __future__ import annotations

import re
from typing import Any

from fastapi import HTTPException, Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from shorthash.web.settings import Settings

__all__ = ["content_type", "images_of", "keep_in_memory", "read_form", "texts_of"]

LONGEST_NAME = 120  # characters of a file's name that are kept


def keep_in_memory(max_body: int) -> None:
    """Let no form be written to the disk: a body is small enough to be held, and nothing may leave traces."""
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, max_body + 1)


def content_type(request: Request, takes_images: bool) -> str:
    """Either "json" or "form"; 415 for everything else."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    charset = re.search(r'charset="?([^\s";]+)', parameters.lower())
    if kind == "application/json" and (charset is None or charset.group(1) in ("utf-8", "utf8", "us-ascii")):
        return "json"
    if kind == "multipart/form-data" and takes_images:
        return "form"
    known = "application/json (UTF-8)" + (" or multipart/form-data" if takes_images else "")
    note = "" if takes_images or kind != "multipart/form-data" else ", since this collection takes vectors, not images"
    raise HTTPException(415, f"The content type must be {known}{note}. Got {given[:60] or 'none'!r}.")


async def read_form(request: Request, settings: Settings) -> FormData:
    """The fields of a multipart body; the caller closes it."""
    try:
        parser = MultiPartParser(request.headers, request.stream(), max_files=settings.max_images, max_fields=10)
        return await parser.parse()
    except MultiPartException as error:
        raise HTTPException(
            400, f"The form cannot be read: {error.message.rstrip('.')}; check how it is made."
        ) from None
    except (KeyError, ValueError, LookupError):  # no boundary, or a charset nobody knows
        raise HTTPException(400, "The form cannot be read: its content type is incomplete; name a boundary.") from None


async def images_of(form: FormData, most: int) -> list[tuple[str, bytes]]:
    """Names and bytes of the files in the field "image"."""
    images: list[tuple[str, bytes]] = []
    for field, value in form.multi_items():
        if field != "image" and isinstance(value, UploadFile):
            raise HTTPException(422, f"Files come in the field image. Got the field {field[:60]!r}.")
        if field == "image":
            if not isinstance(value, UploadFile):
                raise HTTPException(422, "The field image must be a file with a file name; in curl: -F image=@cat.jpg")
            images.append((base_name(value.filename), await value.read()))
    if not 1 <= len(images) <= most:
        wanted = "one file" if most == 1 else f"1 to {most} files"
        raise HTTPException(422, f"The form must hold {wanted} in the field image. Got {len(images)}.")
    return images


def texts_of(form: FormData, known: set[str]) -> dict[str, str]:
    """The other fields; each may come once."""
    texts: dict[str, str] = {}
    for field, value in form.multi_items():
        if field == "image":
            continue
        if field not in known or field in texts:
            why = "came twice" if field in texts else "is unknown"
            raise HTTPException(422, f"The field {field[:60]!r} {why}; known are image, {', '.join(sorted(known))}.")
        texts[field] = str(value)
    return texts


def base_name(given: Any) -> str:
    r"""The name of an uploaded file, without folders and odd characters.

    Examples
    --------
    >>> base_name("../../etc/passwd"), base_name("C:\\Users\\me\\cat.jpg"), base_name(None)
    ('passwd', 'cat.jpg', 'image')
    """
    name = re.split(r"[/\\]", str(given or ""))[-1]
    clean = "".join(c for c in name if c.isprintable()).strip().lstrip(".")[:LONGEST_NAME]
    return clean.encode("utf-8", "ignore").decode() or "image"
