"""A certificate authority for one cluster, and the kubeconfigs that its certificates open."""

import json
import ssl
import subprocess
from pathlib import Path

EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = "30"


def openssl(*argv: object) -> None:
    """Run openssl; RuntimeError with what it said where it fails."""
    done = subprocess.run(["openssl", *map(str, argv)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {argv[0]} exited with {done.returncode}: {done.stderr.strip()}")


class Authority:
    """Certificates signed by one throw-away authority, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.certificate, self.key = folder, folder / "ca.crt", folder / "ca.key"

    def create(self) -> None:
        """Make the authority itself and the key that signs service account tokens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        openssl(
            "req",
            "-x509",
            *EC_KEY,
            "-keyout",
            self.key,
            "-out",
            self.certificate,
            "-days",
            DAYS,
            "-subj",
            "/CN=test-ca",
        )
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.folder / "sa.key")

    def issue(self, name: str, subject: str, names: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
        """Certificate and key, for clients and servers. names: openssl's subjectAltName."""
        certificate, key, request, extensions = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr", "ext"))
        extensions.write_text(f"extendedKeyUsage=clientAuth,serverAuth\nsubjectAltName={names}\n")
        openssl("req", *EC_KEY, "-keyout", key, "-out", request, "-subj", subject)
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial"),
            *("-days", DAYS, "-out", certificate, "-extfile", extensions),
        )
        return certificate, key

    def kubeconfig(self, path: Path, server: str, user: str) -> Path:
        """Write a kubeconfig for a user whose certificate was issued before; returns path."""
        entry = {
            "client-certificate": str(self.folder / f"{user}.crt"),
            "client-key": str(self.folder / f"{user}.key"),
        }
        cluster = {"server": server, "certificate-authority": str(self.certificate)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": user, "user": entry}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                }
            )
        )
        return path

    def client_context(self, user: str) -> ssl.SSLContext:
        """TLS as that user."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.load_cert_chain(self.folder / f"{user}.crt", self.folder / f"{user}.key")
        return context
