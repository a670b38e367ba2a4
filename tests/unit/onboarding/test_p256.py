"""Both verifiers against OpenSSL's signatures, a published vector, and what must not verify."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from typing import Any

import pytest

from onboarding.p256 import B, G, N, P, is_point, verify, verify_in_python
from tests.fixtures.signer import Signer

pytestmark = pytest.mark.unit


def _no_library(name: str) -> Any:
    raise OSError(name)


OPENSSL = functools.partial(verify, load=ctypes.CDLL)
PYTHON = functools.partial(verify, load=_no_library)
VERIFIERS = pytest.mark.parametrize("verifier", [OPENSSL, PYTHON], ids=["openssl", "python"])
MESSAGE = b"sample"
POINT = (
    0x60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6,
    0x7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299,
)
R = 0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716
S = 0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8
"""RFC 6979, A.2.5: P-256, SHA-256, message "sample"; s is higher than half of n."""


@functools.cache
def _signer() -> Signer:
    return Signer()


def _integer(number: int) -> bytes:
    data = number.to_bytes(max(1, number.bit_length() // 8 + 1))
    return bytes([2, len(data)]) + data


def _der(r: int, s: int) -> bytes:
    body = _integer(r) + _integer(s)
    return bytes([0x30, len(body)]) + body


def _key(point: tuple[int, int]) -> bytes:
    return _signer().key.der[:27] + b"".join(number.to_bytes(32) for number in point)


@VERIFIERS
def test_a_published_signature_is_valid(verifier):
    assert verifier(_key(POINT), _der(R, S), MESSAGE)
    assert not verifier(_key(POINT), _der(R, S), MESSAGE + b"s")


@VERIFIERS
def test_high_and_low_s_are_both_valid(verifier):
    assert verifier(_key(POINT), _der(R, N - S), MESSAGE)


@VERIFIERS
def test_openssls_signatures_are_valid(verifier):
    for number in range(20):
        message = bytes([number]) * number
        signature = _signer().sign(message)
        assert verifier(_signer().key.der, signature, message)
        assert not verifier(_key(POINT), signature, message)


@VERIFIERS
@pytest.mark.parametrize(
    "pair",
    [
        *((0, S), (R, 0), (0, 0), (N, S), (R, N), (R + N, S), (R, S + N), (N, N), (P, S), (1, 1)),
        *((R, 1), (N - 1, N - 1), (S, R), (R - 1, S), (R, S - 1), (2**256 - 1, S)),
    ],
)
def test_refuses_numbers_that_are_no_signature(verifier, pair):
    assert not verifier(_key(POINT), _der(*pair), MESSAGE)
    assert not verify_in_python(POINT, pair, MESSAGE)


FORMS = {
    "empty": b"",
    "only a header": b"\x30\x06",
    "cut": _der(R, S)[:-1],
    "one byte more": _der(R, S) + b"\0",
    "one byte more, counted": bytes([0x30, 0x47]) + _der(R, S)[2:] + b"\0",
    "long length": bytes([0x30, 0x81, 0x46]) + _der(R, S)[2:],
    "no length": bytes([0x30, 0x80]) + _der(R, S)[2:] + b"\0\0",
    "leading zero": bytes([0x30, 0x47, 2, 0x22, 0]) + _der(R, S)[4:],
    "negative r": bytes([0x30, 0x45, 2, 0x20]) + _der(R, S)[5:],
    "not a sequence": bytes([0x31]) + _der(R, S)[1:],
    "not an integer": _der(R, S)[:2] + bytes([3]) + _der(R, S)[3:],
    "raw": R.to_bytes(32) + S.to_bytes(32),
    "zeros": bytes(70),
    "integers of no bytes": bytes([0x30, 4, 2, 0, 2, 0]),
    "length past the end": bytes([0x30, 0x46, 2, 0xFF]) + _der(R, S)[4:],
    "infinity": bytes([0x30, 8, 9, 1, 0x40, 9, 1, 0x40]),
}


@VERIFIERS
@pytest.mark.parametrize("form", FORMS)
def test_refuses_every_other_form_of_a_signature(verifier, form):
    assert not verifier(_key(POINT), FORMS[form], MESSAGE)


@VERIFIERS
def test_refuses_every_flipped_bit_of_a_signature(verifier):
    signature = _der(R, S)
    for bit in range(len(signature) * 8):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not verifier(_key(POINT), bytes(changed), MESSAGE)


@VERIFIERS
def test_refuses_200_flipped_bits_of_a_message(verifier):
    message = b"message" * 100
    signature = _signer().sign(message)
    for bit in range(0, len(message) * 8, len(message) * 8 // 200):
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        assert not verifier(_signer().key.der, signature, bytes(changed))


def test_sums_of_points_meet_doubling_and_infinity():
    """The key G doubles in u·G + v·G; the key -G makes both addends each other's negative."""
    digest = int.from_bytes(hashlib.sha256(MESSAGE).digest())
    negative = (G[0], P - G[1])
    for secret, point in ((1, G), (N - 1, negative)):
        r = G[0] % N  # of the nonce 1
        pair = (r, (digest + r * secret) % N)
        assert verify_in_python(point, pair, MESSAGE)
        assert OPENSSL(_key(point), _der(*pair), MESSAGE)
    assert not verify_in_python(negative, (digest % N, S), MESSAGE)


def test_is_point_tells_the_curve_from_its_twist():
    assert is_point(_key(POINT)[27:])
    assert not is_point(POINT[0].to_bytes(32) + (POINT[1] - 1).to_bytes(32))
    assert not is_point(bytes(64))
    assert not is_point((P).to_bytes(32) + pow(B, (P + 1) // 4, P).to_bytes(32))
