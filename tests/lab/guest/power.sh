#!/bin/sh
# shutdown, poweroff, halt, reboot and systemctl for a machine whose first process is not systemd.
program=${0##*/}
action= delay=0

usage() { echo "$program: not understood: $*" >&2; exit 1; }

seconds_until() {
    case $1 in
    now) echo 0 ;;
    +*) echo $((${1#+} * 60)) ;;
    [0-9]*:[0-9]*) at=$(date -d "$1" +%s) now=$(date +%s)
        echo $(((at - now + 86400) % 86400)) ;;
    [0-9]*) echo $(($1 * 60)) ;;
    *) return 1 ;;
    esac
}

case $program in
poweroff | halt | reboot) action=$program ;;
systemctl)
    for word; do
        case $word in
        poweroff | halt | reboot) action=$word ;;
        -*) ;;
        *) break ;;
        esac
    done
    [ -n "$action" ] || {
        echo "System has not been booted with systemd as init system (PID 1). Can't operate." >&2
        echo "Failed to connect to bus: Host is down" >&2
        exit 1
    }
    ;;
shutdown)
    action=poweroff delay=60
    while [ $# -gt 0 ]; do
        case $1 in
        -h | -P | --poweroff) action=poweroff ;;
        -H | --halt) action=halt ;;
        -r | --reboot) action=reboot ;;
        -c) action=cancel ;;
        -*) usage "$1" ;;
        *) delay=$(seconds_until "$1") || usage "$1"; break ;;
        esac
        shift
    done
    ;;
esac

[ "$(id -u)" = 0 ] || { echo "$program: must be root" >&2; exit 1; }
if [ -f /run/lab/shutdown.pid ]; then
    kill -- "-$(cat /run/lab/shutdown.pid)" 2>/dev/null
    rm -f /run/lab/shutdown.pid
fi
[ "$action" != cancel ] || exit 0
# Everybody is asked to end first, as a real system does it, and then nobody is asked any more.
setsid sh -c '
    sleep "$2"
    trap "" TERM HUP
    [ "$1" != reboot ] || touch /usr/lib/lab/reboot
    echo "lab: $1" >/dev/console
    kill -TERM -1
    sleep 0.5
    kill -KILL "$(cat /run/lab/init.pid)"
' power "$action" "$delay" </dev/null >/dev/null 2>&1 &
echo $! >/run/lab/shutdown.pid
