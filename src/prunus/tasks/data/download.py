"""Downloading data sets from their official places: checked, and all or nothing."""

import errno
import hashlib
import http.client
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from prunus.lookup import unknown
from prunus.tasks.data.errors import DataError
from prunus.tasks.data.sources import SOURCES, Source

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes so far and, if the server tells it, the total."""

_TIMEOUT_SECONDS = 60
_CHUNK = 1 << 20


def download(name: str, root: Path, progress: DownloadProgress | None = None) -> Path:
    """Get a data set and return its folder below `root`; if it is there, nothing is downloaded.

    Every file gets its name only after its SHA-256 was compared with the known one, so an
    interrupted download leaves nothing that could be mistaken for data.
    """
    if name not in SOURCES:
        raise unknown("data set to download", name, SOURCES)
    source = SOURCES[name]
    folder = root / source.folders[0]
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
        if source.unpacked:
            _get_archives(source, Path(temporary), folder, progress)
        else:
            _get_files(source, Path(temporary), folder, progress)
    return folder


def _get_archives(
    source: Source, temporary: Path, folder: Path, progress: DownloadProgress | None
) -> None:
    if all((folder / name).is_file() for name in source.unpacked):
        return
    content = temporary / "content"
    for file, sha256 in source.files.items():
        archive = _fetch(source.url + file, sha256, temporary / file, progress)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(content, filter="data")
            folder.mkdir(parents=True, exist_ok=True)
            for path in (content / folder.name).iterdir():
                path.replace(folder / path.name)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise DataError(f"cannot unpack {source.url}{file} into {folder}: {error}") from error


def _get_files(
    source: Source, temporary: Path, folder: Path, progress: DownloadProgress | None
) -> None:
    for file, sha256 in source.files.items():
        target = folder / file
        if not (target.is_file() and _sha256(target) == sha256):
            path = _fetch(source.url + file, sha256, temporary / file, progress)
            folder.mkdir(parents=True, exist_ok=True)
            path.replace(target)


class _StaysEncrypted(urllib.request.HTTPRedirectHandler):
    """Follows no redirection from https to anything else."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str, sha256: str, path: Path, progress: DownloadProgress | None) -> Path:
    received = 0
    opener = urllib.request.build_opener(_StaysEncrypted)
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as reply, path.open("wb") as out:
            total = reply.length
            while chunk := reply.read(_CHUNK):
                out.write(chunk)
                received += len(chunk)
                if progress:
                    progress(path.name, received, total)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = str(path.parent.parent)
            raise  # elsewhere it would be too large as well
        raise DataError(
            f"cannot download {url} into {path.parent.parent}: {error}. Where there is no "
            f"internet, get the file elsewhere and put its content there"
        ) from error
    found = _sha256(path)
    if found != sha256:
        raise DataError(
            f"{url} has the SHA-256 {found} instead of the expected {sha256} "
            f"({received} bytes received); nothing was kept. Try again, or get it from elsewhere"
        )
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
