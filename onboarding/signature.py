"""The signature of an archive's manifest: a DSSE envelope over an in-toto SLSA statement.

Lies in the archive as manifest.dsse.json, beside the manifest whose sha256 it signs; the manifest
names every other file. Sources: the DSSE protocol (secure-systems-lab/dsse), in-toto Statement v1,
SLSA provenance v1. `cryptography` is imported where a key or a signature is read: vLLM's image has
the names of this module alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

MANIFEST_NAME = "manifest.json"
ENVELOPE_NAME = "manifest.dsse.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
SIGNERS_VARIABLE = "ROUNDHOUSE_SIGNERS"
"""Public keys in a container's environment, a space between them."""
MOST_SIGNERS = 8
"""SageMaker takes 1,024 characters a value of a container's environment; a key has 124."""
UNTRUSTED = "deploy an engine that one of the environment's `trusted_signers` signed"
"""The way out of a server's refusals."""
LARGEST_ENVELOPE = 2**18
"""Bytes that are read of one; a longer one is not whole, and refused."""
_KEY_HEADER = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
"""SubjectPublicKeyInfo of an uncompressed P-256 point, up to its two coordinates."""


class SignatureFault(ValueError):
    """A key or a signature cannot be used; the message says why, without a full stop."""


@dataclass(frozen=True)
class PublicKey:
    """An ECDSA P-256 public key."""

    der: bytes
    """SubjectPublicKeyInfo, 91 bytes."""

    @property
    def keyid(self) -> str:
        """sha256 of the DER."""
        return hashlib.sha256(self.der).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SignedStatement:
    """What an envelope holds; a lock entry keeps it too, so that it is verified offline."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}

    keyid: str
    sig: str
    """Base64 of the DER ECDSA signature (P-256, SHA-256) over `signed_bytes`."""
    statement: str
    """The payload as text: one line of canonical JSON."""

    def envelope(self) -> bytes:
        """Return the one form of the envelope: any other bytes are refused."""
        return canonical_json(
            {
                "payload": base64.b64encode(self.statement.encode()).decode(),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"keyid": self.keyid, "sig": self.sig}],
            }
        )

    @classmethod
    def from_envelope(cls, data: bytes) -> Self:
        """Read what `envelope` returned. Raises SignatureFault for every other form."""
        try:
            document = json.loads(data)
            payload_type, signatures = document["payloadType"], document["signatures"]
            if payload_type != PAYLOAD_TYPE:
                raise SignatureFault(
                    f"its payload is {str(payload_type)[:60]!r}, not {PAYLOAD_TYPE}"
                )
            if len(signatures) != 1:
                raise SignatureFault(f"it holds {len(signatures)} signatures, not one")
            keyid, sig = signatures[0]["keyid"], signatures[0]["sig"]
            if not (isinstance(keyid, str) and isinstance(sig, str)):
                raise SignatureFault("its key id or its signature is not text")
            statement = base64.b64decode(document["payload"], validate=True).decode()
        except SignatureFault:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
            raise SignatureFault("it is not a DSSE envelope") from fault
        signed = cls(keyid=keyid, sig=sig, statement=statement)
        if signed.envelope() != data:
            raise SignatureFault("it is not a DSSE envelope in canonical JSON")
        return signed


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return one line of ASCII JSON, keys sorted, no spaces: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def signed_bytes(payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding of a payload: the message that is signed."""
    return b"DSSEv1 %d %s %d %s" % (
        len(PAYLOAD_TYPE),
        PAYLOAD_TYPE.encode(),
        len(payload),
        payload,
    )


def parse_public_key(text: str) -> PublicKey:
    """Return the key of base64 text: a P-256 SubjectPublicKeyInfo, as KMS returns it.

    Raises SignatureFault.
    """
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    der = _decode_base64(text)
    if der is None:
        raise SignatureFault("is not base64")
    try:
        if der[: len(_KEY_HEADER)] != _KEY_HEADER or len(der) != len(_KEY_HEADER) + 64:
            raise ValueError("another kind of key")
        load_der_public_key(der)
    except ValueError as fault:
        raise SignatureFault(
            "is not the DER SubjectPublicKeyInfo of a P-256 key, 91 bytes "
            "(`aws kms get-public-key --query PublicKey` prints it)"
        ) from fault
    return PublicKey(der)


def parse_signers(text: str) -> tuple[PublicKey, ...]:
    """Return the keys of a container's variable. Raises SignatureFault, for no key too."""
    keys = tuple(map(parse_public_key, text.split()))
    if not keys:
        raise SignatureFault("names no key")
    return keys


def verify_envelope(folder: Path, manifest_sha256: str, signers: Collection[PublicKey]) -> None:
    """Check the envelope that lies beside a manifest. Raises SignatureFault."""
    path = folder / ENVELOPE_NAME
    if not path.is_file():
        raise SignatureFault(f"{ENVELOPE_NAME} is missing beside {MANIFEST_NAME}: nobody signed it")
    with path.open("rb") as file:
        data = file.read(LARGEST_ENVELOPE)
    try:
        verify_statement(SignedStatement.from_envelope(data), manifest_sha256, signers)
    except SignatureFault as fault:
        raise SignatureFault(f"{ENVELOPE_NAME} does not sign this archive: {fault}") from fault


def verify_statement(
    signed: SignedStatement,
    manifest_sha256: str,
    signers: Collection[PublicKey],
    *,
    subject: str = MANIFEST_NAME,
) -> None:
    """Check that one of the signers signed the manifest of this sha256. Raises SignatureFault.

    `subject` is the manifest's name in the statement.
    """
    key = next((signer for signer in signers if signer.keyid == signed.keyid), None)
    if key is None:
        raise SignatureFault(
            f"it is signed by key {signed.keyid[:12]}…, which is none of the "
            f"{len(signers)} trusted signers"
        )
    signature = _decode_base64(signed.sig)
    if signature is None:
        raise SignatureFault("its signature is not base64")
    if not _is_signed(key, signature, signed_bytes(signed.statement.encode())):
        raise SignatureFault(f"its signature is not one of key {signed.keyid[:12]}…")
    digest = _subject_sha256(signed.statement, subject)
    if digest != manifest_sha256:
        raise SignatureFault(
            f"it signs a {subject} of sha256 {digest[:12]}…, not {manifest_sha256[:12]}…"
        )


def _is_signed(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Return True when a DER signature of a message (ECDSA, SHA-256) is the key's."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    public = load_der_public_key(key.der)
    assert isinstance(public, EllipticCurvePublicKey)  # `parse_public_key` takes no other
    try:
        public.verify(signature, message, ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _decode_base64(text: str) -> bytes | None:
    """Return the bytes whose base64 a text is; None for others, unused bits that are set too."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64.b64encode(data).decode() == text else None


def _subject_sha256(statement: str, subject: str) -> str:
    """Return the sha256 of a statement's one subject. Raises SignatureFault."""
    try:
        document = json.loads(statement)
        kinds = (document["_type"], document["predicateType"])
        subjects = [(item["name"], item["digest"]["sha256"]) for item in document["subject"]]
    except (ValueError, LookupError, TypeError, RecursionError) as fault:
        raise SignatureFault("its payload is not an in-toto statement") from fault
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise SignatureFault(f"its payload is a {str(kinds[1])[:60]!r}, not {PREDICATE_TYPE}")
    if len(subjects) != 1 or subjects[0][0] != subject:
        names = ", ".join(str(name) for name, _ in subjects)
        raise SignatureFault(f"its subjects are [{names}], not {subject} alone")
    return str(subjects[0][1])
