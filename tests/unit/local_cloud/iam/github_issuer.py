"""A token issuer with a key of its own, as GitHub's."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
from typing import Any

from local_cloud.iam.tokens import SHA256_PREFIX
from onboarding.aws_limits import GITHUB_ISSUER

PRIME_BITS, EXPONENT = 512, 65537


class Issuer:
    """Signs tokens by RS256; `keys` is the JSON Web Key Set to check them by."""

    def __init__(self, seed: int = 0) -> None:
        generator = random.Random(seed)
        p, q = _prime(generator), _prime(generator)
        self._modulus, self._private = p * q, pow(EXPONENT, -1, (p - 1) * (q - 1))
        key = {"kty": "RSA", "kid": "test", "n": self._modulus, "e": EXPONENT}
        self.keys = {
            "keys": [
                {
                    name: encode(value.to_bytes((value.bit_length() + 7) // 8))
                    if isinstance(value, int)
                    else value
                    for name, value in key.items()
                }
            ]
        }

    def token(self, **claims: Any) -> str:
        """A token with these claims, valid for five minutes unless `exp` says otherwise."""
        header = {"alg": "RS256", "typ": "JWT", "kid": "test"}
        body = {
            "iss": f"https://{GITHUB_ISSUER}",
            "aud": "sts.amazonaws.com",
            "exp": time.time() + 300,
        }
        parts = (json.dumps(part).encode() for part in (header, {**body, **claims}))
        signed = ".".join(encode(part) for part in parts)
        size = (self._modulus.bit_length() + 7) // 8
        digest = SHA256_PREFIX + hashlib.sha256(signed.encode()).digest()
        padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
        number = pow(int.from_bytes(padded), self._private, self._modulus)
        return f"{signed}.{encode(number.to_bytes(size))}"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _prime(generator: random.Random) -> int:
    """A number that is prime as far as Fermat's test says."""
    while True:
        number = generator.getrandbits(PRIME_BITS) | 1 | 3 << PRIME_BITS - 2
        if all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7)):
            return number
