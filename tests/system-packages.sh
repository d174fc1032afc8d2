#!/usr/bin/env bash
# Installs what the tests need beside Python (root on Debian), or says what is missing.
set -euo pipefail
missing=()
[ -x /usr/sbin/sshd ] || missing+=(openssh-server)
command -v rsync >/dev/null || missing+=(rsync)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || missing+=(nftables)
command -v iptables >/dev/null || missing+=(iptables)
command -v sudo >/dev/null || missing+=(sudo)
command -v git >/dev/null || missing+=(git)
command -v curl >/dev/null || missing+=(curl)
command -v chromium >/dev/null || missing+=(chromium)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed: ${missing[*]}; the tests that need them are skipped by name" >&2
    exit 0
fi
# Nothing that is installed here may start a service of the system's own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
fetch() { # a mirror may be out of reach for a moment, and another program may hold apt's locks
    local apt=(apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300)
    "${apt[@]}" update &&
        DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}
for pause in 20 60; do
    fetch && exit 0
    echo "apt-get failed; once again in $pause s" >&2
    sleep "$pause"
done
fetch
