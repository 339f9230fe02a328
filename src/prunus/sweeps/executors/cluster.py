"""A Dask cluster as an executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager

from prunus.errors import SettingError, how_to_install

SECONDS_TO_CONNECT = 20


@contextmanager
def dask_executor(address: str, resources: Mapping[str, float] | None = None) -> Iterator[Executor]:
    """The workers of the Dask scheduler at `address`, such as `tcp://host:8786`.

    `resources` is what each run needs of a worker. For `tls://` addresses the certificates are
    those of Dask's own configuration. Dask gives the run of a lost worker to another one, which
    resumes from the run's last checkpoint; so all of them have to see the same files.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise SettingError(
            "a cluster needs the package distributed, which is not installed: "
            f"{how_to_install('cluster')}"
        ) from error
    try:
        _check_encryption(address)
        client = Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # no answer, no certificates, no address
        raise SettingError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        # Not pure: a run that failed is to be done again when it is submitted again.
        yield client.get_executor(pure=False, resources=dict(resources or {}) or None)


def _check_encryption(address: str) -> None:
    """Raise what is wrong with it at once: a client that is refused takes a minute to end."""
    from distributed.security import Security

    security = Security()
    if not address.startswith("tls://"):
        if security.require_encryption:
            raise ValueError(
                "Dask's configuration requires encryption (distributed.comm.require-encryption): "
                "give an address that begins with tls://"
            )
        return
    names = "certificates (distributed.comm.tls)"
    try:
        found = security.get_connection_args("client").get("ssl_context")
    except OSError as error:  # which does not say of which file
        raise ValueError(f"cannot read the {names} of Dask's configuration: {error}") from error
    if found is None:
        raise ValueError(f"Dask's configuration names no {names}")
