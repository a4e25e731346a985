"""Certificates of a test's own: an authority that nobody else knows, and what it signs."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    chain: Path
    key: Path

    @property
    def settings(self) -> dict[str, str]:
        return {"tls_cert": str(self.chain), "tls_key": str(self.key)}

    def become(self, other: "Pair") -> None:
        """Put another pair in the place of this one, as a renewal does."""
        other.chain.rename(self.chain)
        other.key.rename(self.key)


class Authority:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._count = 0
        self.certificate = folder / "ca.pem"
        _openssl("req", "-x509", *_KEY, "ca.key", "-out", "ca.pem", "-subj", "/CN=an authority", cwd=folder)

    def sign(self, *names: str, days: int = 2) -> Pair:
        """Return a certificate for names such as `DNS:localhost`; for less than no days it is out of date."""
        self._count += 1
        chain, key, request = (f"{self._count}.{ending}" for ending in ("pem", "key", "csr"))
        named = ["-subj", f"/CN={self._count}", "-addext", f"subjectAltName={','.join(names)}"]
        _openssl("req", "-new", *_KEY, key, "-out", request, *named, cwd=self._folder)
        by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-copy_extensions", "copyall", "-days", str(days)]
        _openssl("x509", "-req", "-in", request, "-out", chain, *by, cwd=self._folder)
        return Pair(self._folder / chain, self._folder / key)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout")


def _openssl(*words: str, cwd: Path) -> None:
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True, umask=0o077)
