"""The files by which NVIDIA's kernel module shows its GPUs: files in /proc and device nodes, in a mount namespace of a command's own."""

SCRIPT = """set -e
mount -t tmpfs none /proc/driver
at=$(mktemp -d); mount --rbind /dev $at; mount -t tmpfs none /dev
for name in $at/*; do case $name in */nvidia*) ;; *) [ -d $name ] || cp -a $name /dev/ ;; esac; done
mkdir /dev/nvidia-caps /dev/shm /dev/pts
mount --bind $at/pts /dev/pts
umount -l $at; rmdir $at
node() { mknod -m 666 /dev/$1 c $2 $3; }
node nvidiactl 195 255
cap() {
    mkdir -p /proc/driver/nvidia/capabilities/$1
    echo "DeviceFileMinor: $2" > /proc/driver/nvidia/capabilities/$1/access
    node nvidia-caps/nvidia-cap$2 235 $2
}
"""


def of_instance(instance):
    """The nodes of the GPU instance and of the compute instance, as names below /dev/nvidia-caps."""
    return [f"nvidia-cap{first + instance['gpu_instance']}" for first in (100, 200)]


# As on a host where version 2 of cgroups is alone: runtimes go by the file system that is here.
CGROUP_2 = "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup\n"
WITH_CGROUP_2 = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", CGROUP_2 + 'exec "$@"', "sh"]


def with_module(gpus, instances=(), cgroup_2=False):
    """The words before a command that sees the module. GPU i, as `carve gpu list` has it, is /dev/nvidia(i + 3): a
    minor number is no index. Of `instances`, as GET /v1/mig lists them, all are GPU 0's."""
    script = SCRIPT
    for minor, gpu in enumerate(gpus, 3):
        at = f"/proc/driver/nvidia/gpus/{minor}"
        script += f"mkdir -p {at}; printf 'Bus Location: \\t{gpu['pci_bus_id'][4:]}\\nDevice Minor: \\t {minor}\\n' > {at}/information\n"
        script += f"node nvidia{minor} 195 {minor}\n"
    for i in instances:
        gi, ci = i["gpu_instance"], i["compute_instance"]
        script += f"cap gpu3/mig/gi{gi} {100 + gi}\ncap gpu3/mig/gi{gi}/ci{ci} {200 + gi}\n"
    script += CGROUP_2 if cgroup_2 else ""
    return ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", script + 'exec "$@"', "sh"]
