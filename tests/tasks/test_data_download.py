import hashlib
import io
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_data_cifar import write_cifar10
from test_data_idx import write_mnist

from prunus.errors import SettingError
from prunus.tasks.data import ArrayData, DataError, DataOptions, download, load_data
from prunus.tasks.data.sources import SOURCES, Source


class Quiet(SimpleHTTPRequestHandler):
    requests: int = 0

    def log_message(self, *_: object) -> None:
        type(self).requests += 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "server"
    folder.mkdir()
    Quiet.requests = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def offer(monkeypatch: pytest.MonkeyPatch, name: str, url: str, files: dict[str, str]) -> None:
    source = replace(SOURCES[name], url=url, files=files, elsewhere=())
    monkeypatch.setitem(SOURCES, name, source)


@pytest.fixture
def cifar_server(server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, url = server
    content = write_cifar10(folder)
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(content, content.name)
    offer(monkeypatch, "cifar10", url, {archive.name: sha256(archive)})
    return archive


def test_archive(tmp_path: Path, cifar_server: Path) -> None:
    root = tmp_path / "data"
    seen: list[tuple[str, int, int | None]] = []
    folder = download("cifar10", root, progress=lambda *step: seen.append(step))
    assert [path.name for path in root.iterdir()] == [folder.name] == ["cifar-10-batches-py"]
    size = cifar_server.stat().st_size
    assert seen[-1] == ("cifar-10-python.tar.gz", size, size)
    data = load_data("cifar10", root, DataOptions(validation_images=1))
    assert isinstance(data, ArrayData)
    assert len(data.train) == 14
    download("cifar10", root)
    assert Quiet.requests == 1


def test_missing_data_is_fetched_on_request(tmp_path: Path, cifar_server: Path) -> None:
    root = tmp_path / "data"
    options = DataOptions(validation_images=1)
    load_data("cifar10", root, options, fetch_missing=True)
    (root / "cifar-10-batches-py" / "data_batch_1").unlink()
    load_data("cifar10", root, options, fetch_missing=True)
    cifar_server.unlink()
    load_data("cifar10", root, options, fetch_missing=True)


def test_wrong_checksum_keeps_nothing(
    tmp_path: Path, cifar_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "cifar10", SOURCES["cifar10"].url, {cifar_server.name: "0" * 64})
    with pytest.raises(
        DataError, match=f"{sha256(cifar_server)} instead of the expected {'0' * 64}"
    ):
        download("cifar10", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_files(tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = server
    files = {path.name: sha256(path) for path in write_mnist(folder / "mnist").iterdir()}
    offer(monkeypatch, "mnist", f"{url}mnist/", files)
    root = tmp_path / "data"
    target = download("mnist", root)
    assert {path.name: sha256(path) for path in target.iterdir()} == files
    (target / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    download("mnist", root)
    assert {path.name: sha256(path) for path in target.iterdir()} == files
    assert Quiet.requests == 5


def test_archive_cannot_write_elsewhere(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = server
    archive = folder / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../escaped"), io.BytesIO())
    offer(monkeypatch, "cifar10", url, {archive.name: sha256(archive)})
    with pytest.raises(DataError, match=r"cannot unpack .*evil"):
        download("cifar10", tmp_path / "data")
    assert not list(tmp_path.rglob("escaped"))


def test_no_such_file_and_no_server(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "cifar10", server[1], {"gone.tar.gz": "0" * 64})
    with pytest.raises(DataError, match=r"cannot download .*gone.*404.*no internet"):
        download("cifar10", tmp_path / "data")
    offer(monkeypatch, "cifar10", "http://127.0.0.1:1/", {"gone.tar.gz": "0" * 64})
    with pytest.raises(DataError, match=r"cannot download .*refused"):
        download("cifar10", tmp_path / "data")


def encrypted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What an https server here needs; its certificate is trusted meanwhile."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    options = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    command = ["openssl", "req", "-x509", *options.split(), *names]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_a_redirection_stays_encrypted(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = server[1]

    class Redirects(Quiet):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", plain + "file.tar.gz")
            self.end_headers()

    with ThreadingHTTPServer(("localhost", 0), Redirects) as https:
        https.socket = encrypted(tmp_path, monkeypatch).wrap_socket(https.socket, server_side=True)
        threading.Thread(target=https.serve_forever, daemon=True).start()
        address = f"https://localhost:{https.server_port}/"
        offer(monkeypatch, "cifar10", address, {"file.tar.gz": "0" * 64})
        with pytest.raises(DataError, match=rf"redirects to {plain}.* not encrypted"):
            download("cifar10", tmp_path / "data")
        https.shutdown()


@pytest.mark.usefixtures("cifar_server")
def test_a_full_disk_is_not_taken_for_a_missing_internet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full = partial(Path.open, Path("/dev/full"), "wb", buffering=0)
        patch.setattr(Path, "open", lambda *_: full())
        with pytest.raises(OSError, match="No space left") as raised:
            download("cifar10", tmp_path / "data")
    assert raised.value.filename == str(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_only_some_data_sets_can_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no data set to download named 'imagenet'"):
        download("imagenet", tmp_path)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_downloads_are_verified_over_https(source: Source) -> None:
    assert source.url.startswith("https://")
    assert all(len(bytes.fromhex(digest)) == 32 for digest in source.files.values())
