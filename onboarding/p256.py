"""ECDSA over NIST P-256 with SHA-256, verification only: OpenSSL where it is, Python where not.

Nothing here is secret, so nothing needs constant time. Source: FIPS 186-5, 6.4.2; SEC 1, 4.1.4.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any

LIBRARY = "libcrypto.so.3"
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Jacobian = tuple[int, int, int]
"""(x, y, z) of the point (x/z², y/z³); z 0 is the point at infinity."""


def is_point(point: bytes) -> bool:
    """Return True when 64 bytes are the coordinates of a point of the curve."""
    x, y = _numbers(point)
    return x < P and y < P and (y * y - (x**3 - 3 * x + B)) % P == 0


def verify(
    key: bytes, signature: bytes, message: bytes, load: Callable[[str], Any] = ctypes.CDLL
) -> bool:
    """Return True when a DER signature of a message is the key's.

    `key` is the DER SubjectPublicKeyInfo of a point of the curve.
    """
    pair = _parse_der(signature)
    if pair is None:
        return False
    try:
        library = load(LIBRARY)
    except OSError:
        return verify_in_python(_numbers(key[-64:]), pair, message)
    return _verify_by_openssl(library, key, signature, message)


def verify_in_python(point: tuple[int, int], pair: tuple[int, int], message: bytes) -> bool:
    """Return True when (r, s) is a signature of the message by the key at a point of the curve."""
    r, s = pair
    if not (0 < r < N and 0 < s < N):
        return False
    inverse = pow(s, -1, N)
    digest = int.from_bytes(hashlib.sha256(message).digest())
    x, _, z = _sum_of_multiples(digest * inverse % N, r * inverse % N, point)
    return z != 0 and x * pow(z, -2, P) % P % N == r


def _verify_by_openssl(library: Any, key: bytes, signature: bytes, message: bytes) -> bool:
    pointers = ("d2i_PUBKEY", "EVP_MD_CTX_new", "EVP_sha256")
    for name in pointers:
        getattr(library, name).restype = ctypes.c_void_p
    data = ctypes.c_char_p(key)
    parsed = ctypes.c_void_p(library.d2i_PUBKEY(None, ctypes.byref(data), ctypes.c_long(len(key))))
    context, digest = (ctypes.c_void_p(getattr(library, name)()) for name in pointers[1:])
    try:
        if library.EVP_DigestVerifyInit(context, None, digest, None, parsed) != 1:
            return False
        sizes = (ctypes.c_size_t(len(signature)), ctypes.c_size_t(len(message)))
        return bool(library.EVP_DigestVerify(context, signature, sizes[0], message, sizes[1]) == 1)
    finally:
        library.EVP_MD_CTX_free(context)
        library.EVP_PKEY_free(parsed)
        library.ERR_clear_error()


def _parse_der(signature: bytes) -> tuple[int, int] | None:
    """Return (r, s) of a DER signature; None unless these are the only bytes for these numbers."""
    if len(signature) < 8 or len(signature) > 72:
        return None
    length = signature[3]
    r = int.from_bytes(signature[4 : 4 + length], signed=True)
    s = int.from_bytes(signature[6 + length :], signed=True)
    if not (0 < r < N and 0 < s < N):
        return None
    body = b"".join(
        bytes([2, len(data)]) + data
        for data in (number.to_bytes(number.bit_length() // 8 + 1) for number in (r, s))
    )
    return (r, s) if signature == bytes([0x30, len(body)]) + body else None


def _numbers(point: bytes) -> tuple[int, int]:
    return int.from_bytes(point[:32]), int.from_bytes(point[32:])


def _sum_of_multiples(u: int, v: int, point: tuple[int, int]) -> _Jacobian:
    """Return u·G + v·point, both read from the highest bit at once."""
    first, second = (*G, 1), (*point, 1)
    addends = {(1, 0): first, (0, 1): second, (1, 1): _add(first, second)}
    total = (0, 1, 0)
    for place in range(255, -1, -1):
        total = _double(total)
        bits = (u >> place & 1, v >> place & 1)
        if bits != (0, 0):
            total = _add(total, addends[bits])
    return total


def _double(point: _Jacobian) -> _Jacobian:
    x, y, z = point
    square = y * y % P
    slope, product = 3 * (x - z * z) * (x + z * z) % P, 4 * x * square % P
    new_x = (slope * slope - 2 * product) % P
    return new_x, (slope * (product - new_x) - 8 * square * square) % P, 2 * y * z % P


def _add(first: _Jacobian, second: _Jacobian) -> _Jacobian:
    if first[2] == 0 or second[2] == 0:
        return second if first[2] == 0 else first
    (x1, y1, z1), (x2, y2, z2) = first, second
    u1, u2 = x1 * z2 * z2 % P, x2 * z1 * z1 % P
    s1, s2 = y1 * z2**3 % P, y2 * z1**3 % P
    if u1 == u2:
        return _double(first) if s1 == s2 else (0, 1, 0)
    h, slope = u2 - u1, s2 - s1
    h3, v = h * h * h % P, u1 * h * h % P
    x3 = (slope * slope - h3 - 2 * v) % P
    return x3, (slope * (v - x3) - s1 * h3) % P, h * z1 * z2 % P
