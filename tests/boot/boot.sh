#!/bin/bash
# boot.sh TREE APP COMMAND...: boots systemd on a copy of TREE ("/" is this machine's own) and runs COMMAND in it.
# APP is bound read-only at /opt/app. Needs root, systemd-nspawn, and cgroup v2 somewhere. There is no network inside;
# all writes go to an overlay that vanishes. The exit status is that of COMMAND.
set -euo pipefail
TREE=$1 APP=$2; shift 2
WORK=$(mktemp -d /tmp/gate-boot.XXXXXX)
export TREE APP WORK NAME=gate-$$
cat > "$WORK/boot.sh" <<'B'
mkdir -p /run/systemd/nspawn; mount -t tmpfs tmpfs /run/systemd/nspawn
umount -R -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup   # only in this mount namespace
if [ "$TREE" = / ]; then mkdir "$WORK/root"; mount --bind / "$WORK/root"; TREE=$WORK/root; fi   # nspawn refuses -D /
exec systemd-nspawn -q -D "$TREE" --machine="$NAME" --register=no --keep-unit --private-network --volatile=overlay \
  --link-journal=no --capability=CAP_BPF,CAP_PERFMON --system-call-filter=bpf --bind-ro="$APP:/opt/app" --boot \
  --console=pipe -- --unit=basic.target
B
CG=/sys/fs/cgroup/unified; [ -d $CG ] || CG=/sys/fs/cgroup
mkdir "$CG/$NAME"
( echo "$BASHPID" > "$CG/$NAME/cgroup.procs"; exec unshare -m bash "$WORK/boot.sh" </dev/null >"$WORK/log" 2>&1 ) & P=$!
LEADER=
cleanup() {
  kill -TERM $P 2>/dev/null || true
  for _ in $(seq 100); do kill -0 $P 2>/dev/null || break; sleep 0.1; done
  if kill -0 $P 2>/dev/null; then kill -KILL ${LEADER:-$P} $P 2>/dev/null || true; fi
  find "$CG/$NAME" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  rm -rf --one-file-system "$WORK"
}
trap cleanup EXIT
for _ in $(seq 300); do
  LEADER=$(awk '{print $1}' /proc/$P/task/$P/children 2>/dev/null || true)
  if [ -n "$LEADER" ] && nsenter -t "$LEADER" -a test -S /run/systemd/private 2>/dev/null; then break; fi
  kill -0 $P 2>/dev/null || { cat "$WORK/log" >&2; exit 1; }
  sleep 0.1
done
RC=0; nsenter -t "$LEADER" -a "$@" || RC=$?
exit $RC
