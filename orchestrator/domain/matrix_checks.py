"""Checks of a matrix that matches the schema, for values that cannot be combined."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import PurePosixPath

from orchestrator.domain.commit import url_fault
from orchestrator.domain.document_problems import Path, Problem, nearest
from orchestrator.domain.machine import PlatformError, ProviderTraits, platform_problems
from orchestrator.domain.manifest import IDENTIFIER, Manifest, unknown_environment
from orchestrator.domain.matrix import (
    ANY,
    BASELINE_SOURCES,
    COMMON_KEYS,
    Baseline,
    ExpectedHardware,
    Host,
    JobSelection,
    Matrix,
    Platform,
    Subject,
    idle_timeouts_of,
    jobs_on,
    selects,
    why_unfit,
)
from orchestrator.domain.money import CENT_OF_CENT, TOO_SMALL

FEWEST_PAIRS = 4
"""Minimum number of pairs with which a ratio's variance can be estimated."""
MOST_PAIRS = 1_000
MOST_MINUTES = 30 * 24 * 60
MOST_RETRIES = 100


def check_matrix(
    matrix: Matrix, manifest: Manifest, providers: Mapping[str, ProviderTraits]
) -> tuple[Problem, ...]:
    """Return every problem of the matrix, given its payload and the providers."""
    found = [
        *_name_problems(matrix),
        *_platform_list_problems(matrix, providers),
        *_environment_problems(matrix, manifest),
        *_job_problems(matrix, manifest),
        *_limit_problems(matrix, providers),
        *_subject_problems(matrix.subject),
        *_baseline_problems(matrix),
        *_secret_problems(matrix, manifest),
    ]
    return tuple(found)


def _name_problems(matrix: Matrix) -> Iterator[Problem]:
    if not matrix.metadata.name.strip():
        yield Problem(("metadata", "name"), "must not be empty")


def _platform_list_problems(
    matrix: Matrix, providers: Mapping[str, ProviderTraits]
) -> Iterator[Problem]:
    if not matrix.platforms:
        yield Problem(("platforms",), "a matrix needs at least one platform")
    repeated = Counter(p.id for p in matrix.platforms)
    for index, platform in enumerate(matrix.platforms):
        path: Path = ("platforms", index)
        if repeated[platform.id] > 1:
            yield Problem(
                (*path, "id"), f"{platform.id!r} is the id of {repeated[platform.id]} platforms"
            )
        if not IDENTIFIER.fullmatch(platform.id):
            message = f"{platform.id!r} must be letters, digits, '-' and '_' (at most 64)"
            yield Problem((*path, "id"), message)
        if platform.provider not in providers:
            hint = nearest(platform.provider, providers)
            yield Problem((*path, "provider"), f"there is no provider {platform.provider!r}{hint}")
        else:
            yield from _provider_problems(platform, providers[platform.provider], path)
        yield from _value_problems(platform, path)
        if platform.expect is not None:
            yield from _expect_problems(platform.expect, platform.provider, (*path, "expect"))


def _value_problems(platform: Platform, path: Path) -> Iterator[Problem]:
    """Yield problems of values that no provider accepts: repeated values, and no accelerator."""
    for f in fields(platform):
        value = getattr(platform, f.name)
        for position, one in enumerate(value if isinstance(value, tuple) else ()):
            if isinstance(one, str) and f.name != "environments" and one in value[:position]:
                yield Problem((*path, f.name, position), f"{one!r} occurs twice")
    if platform.accelerator is not None and platform.accelerator.count < 1:
        yield Problem((*path, "accelerator", "count"), "must be at least 1")


def _expect_problems(expect: ExpectedHardware, provider: str, path: Path) -> Iterator[Problem]:
    for f in fields(expect):
        if getattr(expect, f.name).strip().lower() == ANY:
            message = "`any` is a word of policies: in a matrix leave out what is not asked for"
            yield Problem((*path, f.name), message)
    if expect == ExpectedHardware():
        yield Problem(path, "names nothing: give `provider`, `instance` or `accelerator`")
    if expect.provider not in ("", ANY, provider):
        message = (
            f"expect.provider is {expect.provider!r}, but the platform's provider is {provider!r}"
        )
        yield Problem((*path, "provider"), message)


def _provider_problems(platform: Platform, traits: ProviderTraits, path: Path) -> Iterator[Problem]:
    keys = (
        *_provider_key_problems(platform, traits, path),
        *_connection_problems(platform, traits, path),
    )
    yield from keys
    if not keys:
        for problem in traits.check(platform):
            yield Problem((*path, *problem.path), problem.message)


def _provider_key_problems(
    platform: Platform, traits: ProviderTraits, path: Path
) -> Iterator[Problem]:
    accepted = COMMON_KEYS | traits.keys
    for f in fields(platform):
        given = getattr(platform, f.name) is not None
        if given and f.name not in accepted:
            message = (
                f"provider {traits.name!r} has no use for {f.name!r}{nearest(f.name, traits.keys)}"
            )
            yield Problem((*path, f.name), message)
        elif getattr(platform, f.name) == () and f.name not in (*traits.required, "environments"):
            yield Problem(
                (*path, f.name), "the list is empty: name something, or leave the key out"
            )
        if f.name in traits.required and not getattr(platform, f.name):
            yield Problem(path, f"provider {traits.name!r} needs {f.name!r}")


def _connection_problems(
    platform: Platform, traits: ProviderTraits, path: Path
) -> Iterator[Problem]:
    if platform.connect is not None and platform.connect not in traits.connect:
        known = ", ".join(sorted(traits.connect))
        message = f"provider {traits.name!r} has no {platform.connect!r}; it has {known}"
        yield Problem((*path, "connect"), message)
    if platform.bastion is None:
        return
    if traits.rented and platform.connect != "private":
        message = "a bastion leads to private addresses: write `connect: private` beside it"
        yield Problem((*path, "bastion"), message)
    for problem in platform_problems(platform, [_bastion]):
        yield Problem((*path, *problem.path), problem.message)


def _bastion(platform: Platform) -> Host | None:
    return checked_host(platform.bastion, path=("bastion",)) if platform.bastion else None


def _environment_problems(matrix: Matrix, manifest: Manifest) -> Iterator[Problem]:
    places: list[tuple[Path, tuple[str, ...]]] = [(("environments",), matrix.environments)]
    for index, platform in enumerate(matrix.platforms):
        if platform.environments is not None:
            places.append((("platforms", index, "environments"), platform.environments))
    for path, names in places:
        if not names:
            yield Problem(path, "name at least one environment, or leave the key out")
        for position, name in enumerate(names):
            if names.index(name) != position:
                yield Problem((*path, position), f"{name!r} occurs twice")
            if manifest.environment(name) is None:
                yield Problem((*path, position), unknown_environment(name, manifest))


def _job_problems(matrix: Matrix, manifest: Manifest) -> Iterator[Problem]:
    job_ids = [job.id for job in manifest.job]
    if not matrix.jobs:
        yield Problem(("jobs",), 'a matrix needs at least one job; `- {select: "*"}` takes all')
    for index, selection in enumerate(matrix.jobs):
        path: Path = ("jobs", index)
        yield from _selection_problems(selection, path, job_ids)
        yield from _target_problems(selection, (*path, "on"), matrix, manifest)
    for index, platform in enumerate(matrix.platforms):
        if not jobs_on(platform.id, matrix, manifest):
            yield Problem(("platforms", index), f"no job is sent to platform {platform.id!r}")
    yield from _idle_timeout_problems(matrix, manifest)
    if matrix.baseline is not None:
        yield from _paired_problems(matrix, manifest)


def _paired_problems(matrix: Matrix, manifest: Manifest) -> Iterator[Problem]:
    sent = {job for platform in matrix.platforms for job in jobs_on(platform.id, matrix, manifest)}
    for job in manifest.job:
        if job.id in sent and job.kind == "benchmark" and job.metrics:
            message = (
                f"benchmark {job.id!r}: `metrics` is not read in paired benchmarks: let the"
                " benchmark write its metrics to $SEATRIAL_EVENTS"
            )
            yield Problem(("baseline",), message)


def _target_problems(
    selection: JobSelection, path: Path, matrix: Matrix, manifest: Manifest
) -> Iterator[Problem]:
    platform_ids = [p.id for p in matrix.platforms]
    if not selection.on:
        yield Problem(path, "name at least one platform, or `all`")
    for position, platform_id in enumerate(() if selection.on == "all" else selection.on):
        if platform_id not in platform_ids:
            hint = nearest(platform_id, [*platform_ids, "all"])
            yield Problem((*path, position), f"there is no platform {platform_id!r}{hint}")
        unfit = _unfit(selection, platform_id, matrix, manifest)
        if unfit:
            yield Problem((*path, position), unfit)


def _unfit(selection: JobSelection, platform_id: str, matrix: Matrix, manifest: Manifest) -> str:
    """Return why a job that is selected by id cannot run on a named platform; empty if it can.

    Jobs that are selected by a pattern are left out instead.
    """
    jobs = [job for job in manifest.job if job.id == selection.id]
    platforms = [one for one in matrix.platforms if one.id == platform_id]
    reasons = (why_unfit(job, platform) for job in jobs for platform in platforms)
    found = next(filter(None, reasons), "")
    return f"job {selection.id!r} cannot run on {platform_id!r}: {found}" if found else ""


def _idle_timeout_problems(matrix: Matrix, manifest: Manifest) -> Iterator[Problem]:
    for platform in matrix.platforms:
        for job in jobs_on(platform.id, matrix, manifest):
            said = sorted(idle_timeouts_of(job, platform.id, matrix))
            if len(said) > 1:
                words = " and ".join(f"{minutes:g}" for minutes in said)
                message = f"job {job!r} has idle_timeout_minutes {words} on {platform.id!r}"
                yield Problem(("jobs",), f"{message}: say one of them")


def _selection_problems(
    selection: JobSelection, path: Path, job_ids: list[str]
) -> Iterator[Problem]:
    if selection.idle_timeout_minutes is not None and selection.idle_timeout_minutes <= 0:
        yield Problem((*path, "idle_timeout_minutes"), "must be more than 0")
    if (selection.id is None) == (selection.select is None):
        yield Problem(path, "give either `id` or `select`")
    elif not any(selects(selection, job_id) for job_id in job_ids):
        key = "id" if selection.id is not None else "select"
        name = selection.id or selection.select or ""
        what = "no job" if key == "id" else "no job that matches"
        yield Problem((*path, key), f"the payload has {what} {name!r}{nearest(name, job_ids)}")


def _limit_problems(matrix: Matrix, providers: Mapping[str, ProviderTraits]) -> Iterator[Problem]:
    limits = matrix.limits
    rented = [
        p.id for p in matrix.platforms if p.provider in providers and providers[p.provider].rented
    ]
    if rented and limits.max_usd is None:
        yield Problem(("limits",), f"max_usd is required, because {', '.join(rented)} costs money")
    if limits.max_usd is not None and limits.max_usd <= 0:
        yield Problem(("limits", "max_usd"), "must be more than 0")
    elif limits.max_usd is not None and limits.max_usd < CENT_OF_CENT:
        yield Problem(("limits", "max_usd"), TOO_SMALL)
    if not 0 < limits.max_minutes <= MOST_MINUTES:
        message = f"must be more than 0 and at most {MOST_MINUTES}, which is 30 days"
        yield Problem(("limits", "max_minutes"), message)
    if limits.max_parallel < 1:
        yield Problem(("limits", "max_parallel"), "must be at least 1")
    if limits.max_shipped_gb <= 0:
        yield Problem(("limits", "max_shipped_gb"), "must be more than 0")
    if not 0 <= limits.infra_retries <= MOST_RETRIES:
        yield Problem(("limits", "infra_retries"), f"must be from 0 to {MOST_RETRIES}")


def _subject_problems(subject: Subject) -> Iterator[Problem]:
    for key in ("name", "version"):
        if not getattr(subject, key).strip():
            yield Problem(("subject", key), "must not be empty")
    given = [k for k in ("wheel", "package", "git") if getattr(subject, k)]
    if len(given) > 1:
        yield Problem(("subject",), f"one source at most, not {' and '.join(given)}")
    if subject.git and (fault := url_fault(subject.git.url)):
        yield Problem(("subject", "git", "url"), fault)
    if subject.package and "==" not in subject.package:
        message = f"{subject.package!r} must be pinned: {subject.name}=={subject.version}"
        yield Problem(("subject", "package"), message)


def _baseline_problems(matrix: Matrix) -> Iterator[Problem]:
    baseline = matrix.baseline
    if baseline is None:
        return
    given = [k for k in BASELINE_SOURCES if getattr(baseline, k)]
    if len(given) != 1:
        message = f"give one of {', '.join(BASELINE_SOURCES)}"
        yield Problem(("baseline",), f"{message}, not {' and '.join(given)}" if given else message)
    elif (baseline.source == "payload") != (matrix.subject.source == "payload"):
        yield Problem(("baseline", baseline.source), _unlike(matrix.subject))
    if baseline.git and (fault := url_fault(baseline.git.url)):
        yield Problem(("baseline", "git", "url"), fault)
    yield from _pairing_problems(baseline)


def _unlike(subject: Subject) -> str:
    if subject.source == "payload":
        return "the payload itself is the subject: name an earlier one, `payload: {path: ...}`"
    return (
        f"the subject is installed from its {subject.source}: so must its baseline be, by `package`"
        ", `wheel` or `git`"
    )


def _pairing_problems(baseline: Baseline) -> Iterator[Problem]:
    if baseline.min_pairs < FEWEST_PAIRS:
        yield Problem(("baseline", "min_pairs"), f"must be at least {FEWEST_PAIRS}")
    if baseline.max_pairs < baseline.min_pairs:
        message = f"must not be less than min_pairs, which is {baseline.min_pairs}"
        yield Problem(("baseline", "max_pairs"), message)
    if baseline.max_pairs > MOST_PAIRS:
        yield Problem(("baseline", "max_pairs"), f"must not be more than {MOST_PAIRS}")
    if not baseline.half_width:
        message = f"{baseline.precision!r} is no percentage such as '1.5%'"
        yield Problem(("baseline", "precision"), message)


def _secret_problems(matrix: Matrix, manifest: Manifest) -> Iterator[Problem]:
    for name, source in matrix.secrets.items():
        if "from" not in source:
            yield Problem(("secrets", name), "say where it comes from: {from: env}")
    for job in manifest.job:
        for name in job.secrets:
            used = any(selects(s, job.id) for s in matrix.jobs)
            if used and name not in matrix.secrets:
                yield Problem(("secrets",), f"job {job.id!r} needs the secret {name!r}")


def checked_host(host: Host, *, path: Path) -> Host:
    """Return the host with its values stripped. Raises PlatformError for an invalid value.

    `path` is the position of the host in its platform.
    """
    address = _host_word(host.address, (*path, "address"))
    user = _host_word(host.user, (*path, "user"))
    if not 0 < host.port < 65536:
        raise PlatformError((*path, "port"), f"{host.port!r} is no port number from 1 to 65535")
    key_file = _file_name(host.key_file, (*path, "key_file"))
    host_key = _host_key(host.host_key, (*path, "host_key"))
    return replace(host, address=address, user=user, key_file=key_file, host_key=host_key)


def _host_text(value: str, path: Path) -> str:
    if not value.strip():
        raise PlatformError(path, "must not be empty")
    if not value.isprintable():
        raise PlatformError(path, "holds characters that cannot be printed")
    return value.strip()


def _host_word(value: str, path: Path) -> str:
    word = _host_text(value, path)
    if len(word.split()) > 1:
        raise PlatformError(path, f"{value!r} must not have spaces")
    return word


def _file_name(value: str, path: Path) -> str:
    name = _host_text(value, path)
    if PurePosixPath(name).name != name or name == "..":
        raise PlatformError(
            path, f"{name!r} is not a bare file name; the key lies in the controller's keys folder"
        )
    return name


def _host_key(value: str, path: Path) -> str:
    words = _host_text(value, path).split()
    try:
        kind, blob = words[0], base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error):
        kind, blob = words[0], b""
    name = kind.encode()
    if not blob.startswith(len(name).to_bytes(4, "big") + name):
        raise PlatformError(
            path,
            "not a public host key: write what `cat /etc/ssh/ssh_host_ed25519_key.pub` prints on "
            "the host's own console, for example `ssh-ed25519 AAAA...`",
        )
    return f"{kind} {words[1]}"
