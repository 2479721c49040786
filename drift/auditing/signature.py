"""Signatures of records: Ed25519, by the library `cryptography` (the extra `sign`).

Invariant: a valid signature proves that the owner of the private key signed exactly these files; it says nothing about
files it does not list.

Why: it signs the SHA-256 hashes of the manifest and of every file that it lists, whatever hash the record itself uses.
"""

from __future__ import annotations

import base64
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from drift.auditing.checks import Check, Trouble, judged
from drift.places import write_safely
from drift.records.format import MANIFEST, SIGNATURE, RecordError, hash_file, read_snapshot
from drift.records.journal import JOURNAL
from drift_graph.errors import SettingsError, SinkError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Signature(msgspec.Struct, kw_only=True):
    """The file manifest.sig.

    Attributes:
        hashes: SHA-256 of the manifest and of each file, by path.
        public_key, signature: raw bytes in base64; the signature is of the other fields as compact, sorted JSON.
    """

    format: int = 1
    signed: str
    hashes: dict[str, str]
    public_key: str
    signature: str = ""

    @property
    def message(self) -> bytes:
        plain = msgspec.to_builtins(self)
        del plain["signature"]
        return msgspec.json.encode(plain, order="sorted")


def make_key(path: str | os.PathLike[str]) -> Path:
    """Make a new key: the private one at `path`, the public one at `path` with .pub, both as PEM.

    Raises:
        SettingsError: a file exists.
        SinkError: it cannot be written.
    """
    _need_library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Path(path)
    public = private.with_name(f"{private.name}.pub")
    for each in (private, public):
        if each.exists():
            raise SettingsError(f"{each} is there already, and a key is never overwritten; give another path")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(pem)
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    except OSError as error:
        raise SinkError(f"the key {error.filename} cannot be written: {error.strerror}") from error
    return public


def sign(record: str | os.PathLike[str], key: str | os.PathLike[str]) -> Signature:
    """Sign a record as it is now; the signature is written to manifest.sig in its folder.

    Args:
        key: file of a private Ed25519 key, as PEM.

    Raises:
        RecordError: the record is not complete.
        SettingsError: the key cannot be read.
    """
    private = private_key(key)
    folder = Path(record)
    signature = Signature(
        signed=datetime.now(UTC).isoformat(),
        hashes=_hashes(folder),
        public_key=base64.b64encode(private.public_key().public_bytes_raw()).decode(),
    )
    signature.signature = base64.b64encode(private.sign(signature.message)).decode()
    data = msgspec.json.format(msgspec.json.encode(signature), indent=1) + b"\n"
    try:
        write_safely(folder / SIGNATURE, data)
    except OSError as error:
        raise SinkError(f"{folder / SIGNATURE} cannot be written: {error.strerror}") from error
    return signature


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a record."""
    hashes: dict[str, str] = {}
    for name in _names(folder):
        try:
            hashes[name] = hash_file(folder / name, "sha256")
        except OSError as error:
            raise RecordError(f"{folder / name} cannot be read: {error.strerror}; `drift audit` says more") from error
    return hashes


def _names(folder: Path) -> list[str]:
    """The files of a record, relative to it."""
    manifest, journal, _ = read_snapshot(folder)
    return [MANIFEST, *([JOURNAL] if journal.lines else []), *(file.path for file in manifest.files)]


def check_signature(folder: Path, key: Any) -> Check:
    """Whether the record is what the owner of a key signed. `key`: the public key, or its file."""
    started = time.perf_counter()
    public = public_key(key)
    troubles, signed = _signature_troubles(folder, public)
    well = f"signed by this key at {signed}, and not changed since"
    seconds = time.perf_counter() - started
    return judged("signed", "manifest.sig and SHA-256 of every file", "the public key", troubles, well, seconds)


def _signature_troubles(folder: Path, public: Ed25519PublicKey) -> tuple[list[Trouble], str]:
    from cryptography.exceptions import InvalidSignature

    path = folder / SIGNATURE
    try:
        signature = msgspec.json.decode(path.read_bytes(), type=Signature)
    except FileNotFoundError:
        return [Trouble("not signed", "the record has no manifest.sig; `drift record sign` makes it", SIGNATURE)], ""
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return [Trouble("signature wrong", f"manifest.sig cannot be read: {error}", SIGNATURE)], ""
    try:
        public.verify(base64.b64decode(signature.signature), signature.message)
    except (InvalidSignature, ValueError):
        other = signature.public_key != base64.b64encode(public.public_bytes_raw()).decode()
        why = "it was made with another key, or changed" if other else "it was changed"
        return [Trouble("signature wrong", f"manifest.sig does not fit the key: {why}", SIGNATURE)], ""
    try:
        listed = set(_names(folder))
    except RecordError as error:
        return [Trouble("manifest unreadable", str(error), MANIFEST)], signature.signed
    unsigned = sorted(listed - set(signature.hashes))
    troubles = [Trouble("signature wrong", f"{name} is not in the signature", name) for name in unsigned]
    for name, wanted in signature.hashes.items():
        try:
            found = hash_file(folder / name, "sha256")
        except FileNotFoundError:
            troubles.append(Trouble("file lost", f"{name} was signed and is not there", name))
            continue
        except OSError as error:
            troubles.append(Trouble("file unreadable", f"{name} cannot be read: {error.strerror}", name))
            continue
        if found != wanted:
            kind = "manifest edited" if name in (MANIFEST, JOURNAL) else "file changed"
            troubles.append(Trouble(kind, f"{name} is not the file that was signed", name))
    return troubles, signature.signed


def private_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """The private key in a PEM file."""
    _need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{path} is no private key without a password, as PEM: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(f"{path} is a key for another algorithm than Ed25519; `drift record keygen` makes one")
    return key


def public_key(key_or_path: Any) -> Ed25519PublicKey:
    """A public key, from a key or its PEM file."""
    _need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if isinstance(key_or_path, Ed25519PublicKey):
        return key_or_path
    try:
        key = load_pem_public_key(_read(key_or_path))
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{key_or_path} is no public key, as PEM: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError(f"{key_or_path} is a key for another algorithm than Ed25519")
    return key


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"the key {path} cannot be read: {error.strerror}") from None


def _need_library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise SettingsError("signatures need the library `cryptography`: pip install 'drifting-state[sign]'") from None
