"""Logout tokens of another implementation (joserfc), and forgeries of them: JSON on standard output.

    tokens.py NOW          seconds since 1970 at which the good ones are good
"""

import base64
import hashlib
import hmac
import json
import sys

from joserfc import jwe, jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

NOW = int(sys.argv[1])
EVENT = "http://schemas.openid.net/event/backchannel-logout"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
ABSENT = object()

keys = {
    "rsa": RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig", "alg": "RS256"}),
    "any-rsa": RSAKey.generate_key(2048, {"kid": "any-rsa"}),
    "p256": ECKey.generate_key("P-256", {"kid": "p256", "use": "sig"}),
    "p384": ECKey.generate_key("P-384", {"kid": "p384"}),
    "p521": ECKey.generate_key("P-521", {"kid": "p521"}),
    "ed25519": OKPKey.generate_key("Ed25519", {"kid": "ed25519", "use": "sig"}),
}
stranger = RSAKey.generate_key(2048, {"kid": "rsa"})
encryption = RSAKey.generate_key(2048, {"kid": "encryption"})
short = RSAKey.generate_key(1024, {"kid": "short", "use": "sig"})
later = RSAKey.generate_key(2048, {"kid": "later", "use": "sig", "alg": "RS256"})
count = 0


def claims(**changes):
    global count
    count += 1
    all_of_them = {
        "iss": "https://id.example.org/realms/staff",
        "aud": "thumbnails",
        "iat": NOW,
        "exp": NOW + 120,
        "jti": f"token-{count}",
        "events": {EVENT: {}},
        "sub": "alice",
        "sid": "desk-1",
        **changes,
    }
    return {name: value for name, value in all_of_them.items() if value is not ABSENT}


def sign(payload, key="rsa", alg="RS256", header=None, by=None):
    head = {"alg": alg, "kid": key, "typ": "logout+jwt", **(header or {})}
    head = {name: value for name, value in head.items() if value is not ABSENT}
    registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    return jws.serialize_compact(head, json.dumps(payload), by or keys[key], registry=registry)


def sign_raw(payload):
    head = {"alg": "RS256", "kid": "rsa"}
    return jws.serialize_compact(head, payload, keys["rsa"], registry=jws.JWSRegistry(algorithms=ALGORITHMS))


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(head, payload, signer=lambda signed: b""):
    signed = text(json.dumps(head).encode()) + "." + text(json.dumps(payload).encode())
    return signed + "." + text(signer(signed.encode()))


def with_hmac(secret):
    return by_hand(
        {"alg": "HS256", "kid": "rsa", "typ": "logout+jwt"},
        claims(),
        lambda signed: hmac.new(secret, signed, hashlib.sha256).digest(),
    )


def changed(token, part):
    parts = token.split(".")
    middle = len(parts[part]) // 2
    parts[part] = parts[part][:middle] + ("A" if parts[part][middle] != "A" else "B") + parts[part][middle + 1 :]
    return ".".join(parts)


public_pem = keys["rsa"].as_pem(private=False)
public_jwk = json.dumps(keys["rsa"].as_dict(private=False)).encode()
modulus = base64.urlsafe_b64decode(keys["rsa"].as_dict(private=False)["n"] + "==")

good = {
    "RS256": sign(claims()),
    "RS256, by a key of no algorithm": sign(claims(), "any-rsa"),
    "PS256": sign(claims(), "any-rsa", "PS256"),
    "ES256": sign(claims(), "p256", "ES256"),
    "EdDSA": sign(claims(), "ed25519", "EdDSA"),
    "several audiences": sign(claims(aud=["mail", "thumbnails"])),
    "a list of one audience": sign(claims(aud=["thumbnails"])),
    "without a typ": sign(claims(), header={"typ": ABSENT}),
    "typ in full": sign(claims(), header={"typ": "application/Logout+JWT"}),
    "without a sid": sign(claims(sid=ABSENT)),
    "times with fractions": sign(claims(iat=NOW - 0.5, exp=NOW + 119.5)),
    "a clock that is ahead": sign(claims(iat=NOW + 59)),
    "a clock that is behind": sign(claims(iat=NOW - 120, exp=NOW - 59)),
    "further claims": sign(claims(azp="mail", nested={"a": [1, {"nonce": 1}]}, events={EVENT: {"x": 1}, "other": 5})),
    "a key without a name, alone of its kind": sign(claims(), "p256", "ES256", header={"kid": ABSENT}),
}
other = {
    "without a sub": sign(claims(sub=ABSENT)),
    "ES384": sign(claims(), "p384", "ES384"),
    "ES512": sign(claims(), "p521", "ES512"),
    "RS512": sign(claims(), "any-rsa", "RS512"),
    "later": sign(claims(), "later", by=later),
    "typ JWT": sign(claims(), header={"typ": "JWT"}),
    "a strange user": sign(claims(sub="*")),
    "an empty sub": sign(claims(sub="")),
    "no exp": sign(claims(exp=ABSENT)),
    "no exp, issued long ago": sign(claims(exp=ABSENT, iat=NOW - 361)),
    "no exp, from the future": sign(claims(exp=ABSENT, iat=NOW + 61)),
    "an exp of null": sign(claims(exp=None)),
    "a long sub": sign(claims(sub="x" * 600)),
}

forged = {
    # Nobody has signed it, or somebody else has.
    "alg none": (by_hand({"alg": "none", "typ": "logout+jwt"}, claims()), "alg is none of"),
    "alg None": (by_hand({"alg": "None", "kid": "rsa"}, claims()), "alg is none of"),
    "alg none, with the signature of another": (
        by_hand({"alg": "none", "kid": "rsa"}, claims()) + sign(claims()).split(".")[2], "alg is none of"),
    "no alg": (by_hand({"kid": "rsa"}, claims()), "header is not as RFC 7515"),
    "HS256 with the public key as PEM": (with_hmac(public_pem), "alg is none of"),
    "HS256 with the public key as JWK": (with_hmac(public_jwk), "alg is none of"),
    "HS256 with the modulus": (with_hmac(modulus), "alg is none of"),
    "an empty signature": (sign(claims()).rsplit(".", 1)[0] + ".", "signature is wrong"),
    "somebody else's key": (sign(claims(), by=stranger), "signature is wrong"),
    "a key of its own in the header": (
        sign(claims(), by=stranger, header={"jwk": stranger.as_dict(private=False)}), "signature is wrong"),
    "a key set of its own in the header": (
        sign(claims(), by=stranger, header={"jku": "https://evil.example/jwks"}), "signature is wrong"),
    "another payload": (changed(sign(claims()), 1), "signature is wrong"),
    "another signature": (changed(sign(claims()), 2), "signature is wrong"),
    "an unknown kid": (sign(claims(), header={"kid": "unknown"}), "kid is none of"),
    "another key's kid": (sign(claims(), header={"kid": "any-rsa"}), "signature is wrong"),
    "no kid, where several keys could be meant": (sign(claims(), header={"kid": ABSENT}), "has no kid"),
    "a key for encryption": (sign(claims(), "encryption", by=encryption), "kid is none of"),
    "a key that is too short": (sign(claims(), "short", by=short), "kid is none of"),
    "an algorithm that the key is not for": (
        sign(claims(), "any-rsa", "PS256", header={"kid": "rsa"}), "alg is not that of its key"),
    "an algorithm of another kind of key": (
        by_hand({"alg": "ES256", "kid": "rsa"}, claims(), lambda _: b"x" * 64), "alg is not that of its key"),
    "an algorithm that is not allowed": (sign(claims(), "any-rsa", "RS384"), "alg is none of"),
    "a signature of ECDSA in zeros": (
        by_hand({"alg": "ES256", "kid": "p256"}, claims(), lambda _: bytes(64)), "signature is wrong"),
    # It is no token.
    "encrypted": (
        jwe.encrypt_compact(
            {"alg": "dir", "enc": "A128GCM"}, b"{}", OctKey.generate_key(128)), "is encrypted"),
    "two parts": ("a.b", "is no signed JWT"),
    "four parts": (sign(claims()) + ".x", "is no signed JWT"),
    "padding": (sign(claims()) + "=", "not in base64url"),
    "a header that is no JSON": (text(b"x") + "." + text(b"{}") + ".eA", "header is not as RFC 7515"),
    "a header that is nested without end": (
        text(b'{"alg":' + b"[" * 40_000) + "." + text(b"{}") + ".eA", "header is not as RFC 7515"),
    "claims that are nested without end": (sign_raw('{"a":' * 6_000 + "1" + "}" * 6_000), "no JSON object"),
    "a header that has to be understood": (
        by_hand({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}, claims()), "has a crit"),
    "typ of an access token": (sign(claims(), header={"typ": "at+jwt"}), "typ is none of"),
    "typ JWT": (sign(claims(), header={"typ": "JWT"}), "typ is none of"),
    "typ that is no text": (by_hand({"alg": "RS256", "typ": 5}, claims()), "header is not as RFC 7515"),
    "claims that are no object": (sign([claims()]), "no JSON object"),
    # Each claim is missing, or wrong.
    "no iss": (sign(claims(iss=ABSENT)), "has no iss"),
    "another iss": (sign(claims(iss="https://id.example.org/realms/other")), "iss is not oidc.issuer"),
    "iss with a slash behind": (sign(claims(iss="https://id.example.org/realms/staff/")), "iss is not oidc.issuer"),
    "iss is a list": (sign(claims(iss=["https://id.example.org/realms/staff"])), "iss is not a text"),
    "no aud": (sign(claims(aud=ABSENT)), "has no aud"),
    "another aud": (sign(claims(aud="mail")), "aud lacks oidc.client-id"),
    "an empty list of aud": (sign(claims(aud=[])), "aud lacks oidc.client-id"),
    "aud for somebody unknown as well": (sign(claims(aud=["thumbnails", "evil"])), "not in oidc.other-audiences"),
    "aud is an object": (sign(claims(aud={"thumbnails": 1})), "aud is not a text or a list"),
    "no iat": (sign(claims(iat=ABSENT)), "has no iat"),
    "iat in the future": (sign(claims(iat=NOW + 61)), "iat is in the future"),
    "iat far in the future": (sign(claims(iat=1e300, exp=1e301)), "iat is in the future"),
    "iat long ago": (sign(claims(iat=NOW - 361)), "longer ago than oidc.max-age"),
    "iat before everything": (sign(claims(iat=-1e300)), "longer ago than oidc.max-age"),
    "iat is a text": (sign(claims(iat=str(NOW))), "iat is not a time"),
    "iat is true": (sign(claims(iat=True)), "iat is not a time"),
    "no exp": (sign(claims(exp=ABSENT)), "has no exp"),
    "alg twice": (
        text(b'{"alg":"RS256","alg":"none"}') + "." + text(b"{}") + ".eA", "header is not as RFC 7515"),
    "sub twice": (sign_raw('{"sub":"alice","sub":"bob"}'), "no JSON object"),
    "exp is over": (sign(claims(iat=NOW - 200, exp=NOW - 60)), "has expired"),
    "exp before iat": (sign(claims(iat=NOW, exp=NOW)), "exp is not behind its iat"),
    "exp is null": (sign(claims(exp=None)), "exp is not a time"),
    "no jti": (sign(claims(jti=ABSENT)), "has no jti"),
    "an empty jti": (sign(claims(jti="")), "jti has to have"),
    "a long jti": (sign(claims(jti="x" * 256)), "jti has to have"),
    "jti is a number": (sign(claims(jti=5)), "jti is not a text"),
    "no events": (sign(claims(events=ABSENT)), "has no events"),
    "events of something else": (sign(claims(events={EVENT + "s": {}})), "events lack"),
    "events are a list": (sign(claims(events=[EVENT])), "events is not an object"),
    "the event is true": (sign(claims(events={EVENT: True})), "event is no object"),
    "the event is null": (sign(claims(events={EVENT: None})), "event is no object"),
    "a nonce": (sign(claims(nonce="n")), "has a nonce"),
    "a nonce of null": (sign(claims(nonce=None)), "has a nonce"),
    "neither sub nor sid": (sign(claims(sub=ABSENT, sid=ABSENT)), "neither sub nor sid"),
    "sub is a number": (sign(claims(sub=5)), "sub is not a text"),
    "sid is a list": (sign(claims(sid=["desk-1"])), "sid is not a text"),
    "an ID token": (
        sign({
            "iss": "https://id.example.org/realms/staff", "aud": "thumbnails", "iat": NOW, "exp": NOW + 120,
            "sub": "alice", "nonce": "n",
        }, header={"typ": ABSENT}), "has no jti"),
}


def public(*chosen):
    return {"keys": [key.as_dict(private=False) for key in chosen]}


of_the_provider = public(*keys.values(), short)
of_the_provider["keys"].append(encryption.as_dict(private=False) | {"use": "enc"})
# What is not understood is ignored: RFC 7517, section 5.
of_the_provider["keys"] += [{"kty": "new"}, {"kty": "oct", "k": text(b"x" * 32), "kid": "secret"}, {"kty": "RSA"}, 5]
print(json.dumps({
    "jwks": of_the_provider,
    "rotated": public(keys["rsa"], later),
    "good": good,
    "other": other,
    "forged": {name: {"token": token, "reason": reason} for name, (token, reason) in forged.items()},
}))
