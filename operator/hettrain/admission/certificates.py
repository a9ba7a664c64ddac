"""Certificates of the webhook: each vouches for itself, so there is no authority to keep. Pure but for the clock.

What is trusted is a bundle: the newest certificate, and those before it for as long as they are valid, so that replicas
may change over one after the other.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["LIFETIME", "Pair", "is_usable", "make", "merge_bundle"]

LIFETIME = timedelta(days=90)
RENEWAL = timedelta(days=30)
"""How long before its end a certificate is replaced."""

BACKDATED = timedelta(minutes=5)
"""For clocks that run behind."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def make(host: str, now: datetime, lifetime: timedelta = LIFETIME) -> Pair:
    """A new pair for a host name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hettrain webhook")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def is_usable(pair: Pair, host: str, now: datetime) -> bool:
    """Whether a pair is one, is for this host name, and is not near its end."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return (
        host in names.get_values_for_type(x509.DNSName)
        and key.public_key() == certificate.public_key()
        and certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - RENEWAL
    )


def merge_bundle(newest: bytes, before: bytes, now: datetime) -> bytes:
    """What is to be trusted: the newest certificate, and of those before it the ones that are still valid."""
    kept = [x509.load_pem_x509_certificate(newest)]
    try:
        earlier = x509.load_pem_x509_certificates(before)
    except ValueError:
        earlier = []
    kept += [each for each in earlier if each not in kept and each.not_valid_after_utc > now]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in kept)
