"""Identity of callers: API tokens, browser sessions, scopes, and the person behind a request."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SOCKET = "socket"
"""Token id of the operating-system user who calls through the socket in the controller's home."""
LONGEST_NAME = 200
"""Maximum characters of a name."""

_BLANK = "\N{BRAILLE PATTERN BLANK}"
_INVISIBLE = frozenset(
    "\N{COMBINING GRAPHEME JOINER}"
    "\N{HANGUL CHOSEONG FILLER}\N{HANGUL JUNGSEONG FILLER}"
    "\N{HANGUL FILLER}\N{HALFWIDTH HANGUL FILLER}"
    "\N{KHMER VOWEL INHERENT AQ}\N{KHMER VOWEL INHERENT AA}"
    "\N{MONGOLIAN FREE VARIATION SELECTOR ONE}\N{MONGOLIAN FREE VARIATION SELECTOR TWO}"
    "\N{MONGOLIAN FREE VARIATION SELECTOR THREE}\N{MONGOLIAN FREE VARIATION SELECTOR FOUR}"
    "\N{MONGOLIAN VOWEL SEPARATOR}"
)
_TOGETHER = (
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
    frozenset({"LATIN", "HAN", "HANGUL"}),
)
"""Sets of scripts that one name may combine ("highly restrictive" in Unicode standard 39)."""


class Scope(StrEnum):
    """Permission of a token; each scope includes the ones before it."""

    READ = "read"
    RUN = "run"
    GATE = "gate"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Person:
    """The identity of a caller."""

    name: str
    """Name of the token at that time, of the operating-system user, or `person_of_issuer`."""
    token: str
    """Id of the token, or of the session of a person who signed in at an issuer; or `SOCKET`."""
    is_signed_in: bool = False
    """Whether the caller signed in at an issuer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The token or the browser session behind a request."""

    id: str
    """Id of the token, or of the session of a person who signed in at an issuer."""
    name: str
    """The name of the person, as in `Person.name`."""
    scope: Scope
    display_name: str = ""
    """The name that the issuer reports; only for display."""

    is_person: bool = False
    """Whether a person signed in at an issuer; otherwise a token was used."""

    @property
    def person(self) -> Person:
        """The identity with which the caller signs."""
        return Person(self.name, self.id, self.is_person)

    @property
    def shown(self) -> str:
        """The name that is displayed to the caller."""
        return self.display_name or self.name


def person_of_issuer(issuer: str, subject: str) -> str:
    """Return the name of a person who signs in at an issuer.

    Issuer and subject identify an account for ever (OpenID Connect Core 1.0, section 5.7); a
    display name does not. No issuer contains a `#`, so that the names of two accounts differ.
    """
    return f"{issuer}#{subject}"


def shown_name(text: str) -> str:
    """Normalise a name: NFKC, no invisible characters, single spaces."""
    seen = "".join(" " if one == _BLANK else one for one in text if not _is_invisible(one))
    composed = unicodedata.normalize("NFKC", seen)
    return " ".join("".join(one for one in composed if not _is_invisible(one)).split())


def person_key(name: str) -> str:
    """Return the key of a person's name: names with equal keys are one person.

    In addition to `shown_name`, case and the dot of an i are ignored: Turkish writers lower
    AYŞIN to "ayşın" and all others to "ayşin", so that ı, İ, I and i are one letter here.
    """
    folded = unicodedata.normalize("NFKC", shown_name(name).casefold())
    plain = unicodedata.normalize("NFD", folded).replace("i\N{COMBINING DOT ABOVE}", "i")
    return shown_name(plain.replace("\N{LATIN SMALL LETTER DOTLESS I}", "i"))


def missing_scope(caller: Caller, needed: Scope) -> str:
    """Return the message to a caller without the needed scope."""
    who = caller.name if caller.is_person else f"the token {caller.name!r}"
    return f"this needs the scope {needed}; {who} has {caller.scope}"


def name_fault(text: str) -> str:
    """Return why a name is not allowed; empty if it is allowed.

    Mixes of scripts outside `_TOGETHER` are refused, because letters of different scripts can look
    alike.
    """
    name = shown_name(text)
    if not any(one.isalnum() for one in name):
        return "must have a letter or a digit that can be seen"
    if len(name) > LONGEST_NAME:
        return f"must have at most {LONGEST_NAME} characters"
    scripts: dict[str, list[str]] = {}
    for letter in name:
        if script := _script(letter):
            scripts.setdefault(script, []).append(letter)
    if len(scripts) < 2 or any(scripts.keys() <= known for known in _TOGETHER):
        return ""
    return f"mixes letters that can look alike: {'; '.join(_script_texts(scripts))}. Use one script"


def _script_texts(scripts: dict[str, list[str]]) -> Iterator[str]:
    for script, letters in scripts.items():
        shown = ", ".join(f"{one} (U+{ord(one):04X})" for one in dict.fromkeys(letters))
        yield f"{script.capitalize()} {shown}"


def _is_invisible(one: str) -> bool:
    """Whether the character is invisible: a control, a format character or a variation selector.

    White space is not invisible.
    """
    if one in _INVISIBLE or 0xFE00 <= ord(one) <= 0xFE0F or 0xE0000 <= ord(one) <= 0xE0FFF:
        return True
    return unicodedata.category(one) in ("Cf", "Cc", "Cs", "Co", "Cn") and not one.isspace()


def _script(letter: str) -> str:
    """Return the script of a letter from its Unicode name; empty for other characters."""
    if not letter.isalpha():
        return ""
    first = unicodedata.name(letter, "UNNAMED").replace("-", " ").split()[0]
    return "HAN" if first in ("CJK", "IDEOGRAPHIC") else first


@dataclass(frozen=True, slots=True)
class Token:
    """An API token without its secret."""

    id: str
    name: str
    """Name of the owner; tokens with equal names (`person_key`) belong to one person."""
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    prefix: str = ""
    """The first characters of the secret, by which a found token can be recognised."""

    def is_valid(self, at: datetime) -> bool:
        """Whether the token is neither revoked nor expired at the time `at`."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(Token):
    """A token that was just created."""

    secret: str
    """The secret; shown only once."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Time limits of browser sessions."""

    life: timedelta = timedelta(hours=8)
    """Maximum time since the sign-in."""
    idle: timedelta = timedelta(hours=1)
    """Maximum time since the last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A session of a signed-in browser, without its secret."""

    id: str
    name: str
    """Name of the signed-in person: the token's name, or `person_of_issuer`."""
    display_name: str
    """The name that the issuer reports, only for display; empty after a sign-in with a token."""
    scope: Scope
    token: str | None
    """Id of the token of the sign-in; the session ends with it.

    None after a sign-in at the issuer.
    """
    roles_digest: str
    """Digest of the issuer and its groups' roles at the sign-in; the session ends if they change.

    Empty after a sign-in with a token.
    """
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    address: str
    """The client's address at the sign-in; empty if it is not known."""
    agent: str
    """The User-Agent header at the sign-in."""

    def has_ended(self, at: datetime, limits: SessionLimits) -> bool:
        """Whether the session is expired, or was idle for too long, at the time `at`."""
        return at >= self.expires_at or at >= self.last_used_at + limits.idle
