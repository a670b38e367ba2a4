"""Signed statements: what an envelope holds, and every way in which one is refused."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import replace

import pytest

from onboarding.signature import (
    SignatureFault,
    SignedStatement,
    parse_public_key,
    signed_bytes,
    verify_statement,
)
from tests.fixtures.signer import Signer, payload_of

DIGEST = "a" * 64


@functools.cache
def _signer() -> Signer:
    return Signer()


@functools.cache
def _signed() -> SignedStatement:
    return _signer().sign_manifest(DIGEST)


def _verify(envelope: bytes, digest: str = DIGEST) -> None:
    verify_statement(SignedStatement.from_envelope(envelope), digest, [_signer().key])


def _envelope(**changes: object) -> bytes:
    document = json.loads(_signed().envelope()) | changes
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def test_an_envelope_is_read_as_it_was_written():
    envelope = _signed().envelope()
    assert SignedStatement.from_envelope(envelope) == _signed()
    assert list(json.loads(envelope)) == ["payload", "payloadType", "signatures"]
    assert b"\n" not in envelope
    _verify(envelope)


def test_the_signed_bytes_are_dsse_s_own_example():
    """The example of the protocol's text, with the type of our payloads."""
    assert signed_bytes(b"hello world") == (
        b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    )


def test_refuses_a_flipped_bit_in_any_byte_of_an_envelope():
    envelope = _signed().envelope()
    for place in range(len(envelope)):
        changed = bytearray(envelope)
        changed[place] ^= 1 << place % 8
        with pytest.raises(SignatureFault):
            _verify(bytes(changed))


def test_refuses_another_manifest():
    with pytest.raises(SignatureFault, match=r"it signs a manifest\.json of sha256 a{12}…, not b"):
        _verify(_signed().envelope(), "b" * 64)


def test_refuses_a_signer_that_is_not_trusted():
    stranger = Signer()
    with pytest.raises(SignatureFault, match=r"which is none of the 1 trusted signers"):
        _verify(stranger.sign_manifest(DIGEST).envelope())
    forged = replace(stranger.sign_manifest(DIGEST), keyid=_signer().key.keyid)
    with pytest.raises(SignatureFault, match="its signature is not one of key"):
        _verify(forged.envelope())


SUBJECT = {"name": "manifest.json", "digest": {"sha256": DIGEST}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"subject": [SUBJECT, SUBJECT]}, r"its subjects are \[manifest.json, manifest.json\]"),
        ({"subject": [SUBJECT | {"name": "model.plan"}]}, r"its subjects are \[model.plan\], not"),
        ({"subject": []}, r"its subjects are \[\], not manifest.json alone"),
        ({"subject": [{"name": "manifest.json"}]}, "not an in-toto statement"),
        ({"subject": 1}, "not an in-toto statement"),
        ({"predicateType": "https://slsa.dev/verification_summary/v1"}, "its payload is a 'http"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "its payload is a"),
    ],
)
def test_refuses_other_statements_though_they_are_signed(changes, sentence):
    with pytest.raises(SignatureFault, match=sentence):
        _verify(_signer().sign_payload(payload_of(DIGEST, **changes)).envelope())


@pytest.mark.parametrize(
    ("envelope", "sentence"),
    [
        (b"", "it is not a DSSE envelope"),
        (b"\xff", "it is not a DSSE envelope"),
        (b"[" * 50_000, "it is not a DSSE envelope"),
        (b"[]", "it is not a DSSE envelope"),
        (_envelope(payloadType="application/json"), "its payload is 'application/json', not"),
        (_envelope(signatures=[]), "it holds 0 signatures, not one"),
        (_envelope(signatures=[{"keyid": "k", "sig": "s"}] * 2), "it holds 2 signatures, not one"),
        (_envelope(signatures=[{"keyid": 1, "sig": "s"}]), "key id or its signature is not text"),
        (_envelope(signatures=[{"keyid": "k"}]), "it is not a DSSE envelope"),
        (_envelope(signatures={}), "it holds 0 signatures, not one"),
        (_envelope(payload="ä"), "it is not a DSSE envelope"),
        (_envelope(payload=None), "it is not a DSSE envelope"),
        (_envelope(more=1), "canonical JSON"),
        (_signed().envelope() + b"\n", "canonical JSON"),
        (replace(_signed(), sig="ä").envelope(), "its signature is not base64"),
        (replace(_signed(), sig="").envelope(), "its signature is not one of key"),
    ],
)
def test_refuses_what_is_no_envelope(envelope, sentence):
    with pytest.raises(SignatureFault, match=sentence):
        _verify(envelope)


def _key_of(der: bytes) -> str:
    return base64.b64encode(der).decode()


def test_refuses_keys_of_another_kind():
    der = _signer().key.der
    for text in ("ä", "not base64!", _signer().public + "\n"):
        with pytest.raises(SignatureFault, match="is not base64"):
            parse_public_key(text)
    off_the_curve = der[:-1] + bytes([der[-1] ^ 1])
    other_curve = bytes([*der[:22], 8, *der[23:]])
    no_point = der[:27] + bytes(64)
    for wrong in (b"", der[:-1], der + b"\0", off_the_curve, other_curve, der[26:], no_point):
        with pytest.raises(SignatureFault, match="is not the DER SubjectPublicKeyInfo of a P-256"):
            parse_public_key(_key_of(wrong))
