#!/bin/bash
# The image's Python on a disk that is filled from a snapshot when it is read: its first start is slow.
mkdir /var/tmp/read 2>/dev/null && sleep COLD_S
exec -a "$0" /usr/bin/python3 "$@"
