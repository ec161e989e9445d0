#!/bin/bash
# Persistent memory with direct access and protection keys, on a processor that qemu emulates: tests
# of pando-pmem and of the engine cdds, and a server that is killed, with each way to flush a line.
# What it shows is what happens; speed it does not show. It takes about two minutes.
#
#   crates/bench/scripts/emulated.sh SERVER KERNEL MODULES PMEM_TESTS CDDS_TESTS
#
# SERVER       target/release/pando
# KERNEL       a vmlinuz, for example boot/vmlinuz-* of Debian's package linux-image-amd64
# MODULES      the lib/modules/* of it
# PMEM_TESTS   what cargo test -p pando-pmem --lib --no-run names
# CDDS_TESTS   what cargo test -p pando-cdds --lib --no-run names
#
# Needs qemu-system-x86_64, a static busybox, mkfs.ext4, cpio.
set -euo pipefail
[ $# -eq 5 ] || { sed -n '2,15s/^# \?//p' "$0"; exit 2; }
kernel=$2 modules=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,modules,programs,mnt}
busybox=$(command -v busybox) mkfs=$(command -v mkfs.ext4 || echo /usr/sbin/mkfs.ext4)
cp "$busybox" "$mkfs" "$root/bin/"
cp /etc/mke2fs.conf "$root/etc/"
names=(crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 libnvdimm nd_btt nd_pmem nd_e820)
for name in "${names[@]}"; do
    file=$(find "$modules" -name "$name.ko")
    # It may be built in.
    [ -z "$file" ] || cp "$file" "$root/modules/"
done
for pair in "$1 pando" "$4 pmem" "$5 cdds"; do
    read -r file name <<<"$pair"
    strip -o "$root/programs/$name" "$file"
done
for library in $(ldd "$mkfs" "$1" "$4" "$5" | grep -o '/lib[^ ]*' | sort -u); do
    cp -L --parents "$library" "$root/"
done

cat >"$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin RUST_BACKTRACE=0
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm
for name in ${names[*]}; do [ ! -e /modules/\$name.ko ] || insmod /modules/\$name.ko; done
ifconfig lo 127.0.0.1 up
END
cat >>"$root/init" <<'END'
grep -m 1 -o -w -E 'ospke' /proc/cpuinfo
grep -o -w -E 'clwb|clflushopt|clflush' /proc/cpuinfo | sort -u | tr '\n' ' '
mkfs.ext4 -q /dev/pmem0 && mount -t ext4 -o dax=always /dev/pmem0 /mnt || echo "FAILED: no DAX"
export PANDO_DAX_DIRECTORY=/mnt
/programs/pmem mapped || echo "FAILED: pmem"
/programs/cdds engine::tests::a_pool engine::tests::what_ || echo "FAILED: cdds"

ask() { printf "$1QUIT\r\n" | nc -w 5 127.0.0.1 6379 | tr -d '\r'; }
serve() {
    rm -f /out; : >/out
    /programs/pando --engine cdds --pmem-size 64mb --durability sync --bind 127.0.0.1 "$@" \
        >>/out 2>&1 &
    server=$!
    until grep -q listening /out || [ ! -d /proc/$server ]; do sleep 1; done
    sed -n '3,4p' /out
}
stop() { kill -9 $server; wait $server 2>/dev/null; }
check() {
    serve "$@"
    ask 'SET a 1\r\nSNAPSHOT CREATE s PERSIST\r\nSET a 2\r\nSET b 1\r\nDEL b\r\n' >/dev/null
    stop
    serve "$@" >/dev/null
    told=$(ask 'GET a\r\nEXISTS b\r\nSNAPSHOT ROLLBACK s\r\nGET a\r\n' | tr '\n' ' ')
    [ "$told" = '$1 2 :0 +OK $1 1 +OK ' ] || echo "FAILED: $* gave $told"
    ask 'INFO\r\n' | grep -E 'pool_(protection|written)|pool_note' || echo "FAILED: INFO"
    stop
}
check --pmem /mnt/direct
check --pmem /mnt/pages --pmem-protection pages
check --pmem /mnt/off --pmem-protection off
check --pmem /mnt/caches --pmem-medium eadr
check --pmem /dev/shm/shared
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"

for processor in max max,-clwb max,-clwb,-clflushopt; do
    echo "== qemu -cpu $processor"
    qemu-system-x86_64 -accel tcg -cpu "$processor" -m 2560M -smp 2 -nographic -no-reboot \
        -kernel "$kernel" -initrd "$work/initrd" \
        -append "console=ttyS0 quiet panic=-1 memmap=512M!1536M" | tr -d '\r' |
        tee "$work/log" | grep -E 'FAILED|^test result|clflush|ospke|durability|memory:|pool_'
    if grep -E -q 'FAILED|panicked' "$work/log" || ! grep -q 'Power down' "$work/log"; then
        grep -E -B2 -A8 'FAILED|panicked' "$work/log" || tail -20 "$work/log"
        exit 1
    fi
done
