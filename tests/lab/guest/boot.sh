# Turns an empty mount namespace into a machine's and becomes its first process.
# Arguments: the image's root, the machine's folder, its hostname, its accelerator
# (vendor:device:class:node of PCI, or nothing).
set -eu
image=$1 folder=$2 hostname=$3 pci=$4
mount -t overlay machine -o "lowerdir=$image,upperdir=$folder/disk/upper,workdir=$folder/disk/work" \
    "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs -o ro sys sys
mount -t tmpfs -o mode=0755,size=64m run run
mount -t tmpfs -o mode=0755,size=1m dev dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 0666 "dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 0666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/1/fd/1 dev/console
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
# The accelerators of this computer are not the machine's: it sees the one that it plays, if any.
mount -t tmpfs -o mode=0755,size=1m bus sys/bus
if [ -n "$pci" ]; then
    function=sys/bus/pci/devices/0000:00:1e.0
    mkdir -p "$function"
    set -- $(echo "$pci" | tr : ' ')
    echo "$1" >"$function/vendor"
    echo "$2" >"$function/device"
    echo "$3" >"$function/class"
    [ -z "${4:-}" ] || mknod -m 0666 "dev/$4" c 1 3
fi
mount -o remount,ro sys/bus
mkdir -p run/lab
echo "$hostname" >/proc/sys/kernel/hostname
pivot_root . mnt
cd /
umount -l /mnt
# The clock, the modules and the disks of this computer stay its own.
exec setpriv --bounding-set=-sys_boot,-sys_module,-sys_rawio,-sys_time,-mknod \
    /usr/bin/tini -- /bin/sh /usr/lib/lab/init
