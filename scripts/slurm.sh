#!/usr/bin/env bash
# slurm.sh up DIR    starts a Slurm cluster with two nodes on this machine, and prints the variable SLURM_CONF for its
#                    users
# slurm.sh down DIR  stops the cluster
# It needs root and Debian's slurmctld, slurmd, slurm-client and munge. It writes only to DIR and listens only on the
# loopback interface.
set -euo pipefail

dir=$(realpath "${2:?slurm.sh up|down DIR}")
conf=$dir/slurm.conf

# ended FILE...: waits until the processes whose numbers are in these files have ended, and kills them after 10 s.
ended() {
  for _ in $(seq 100); do
    mapfile -t processes < <(cat "$@" 2>/dev/null)
    kill -0 "${processes[@]}" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "${processes[@]}" 2>/dev/null || true
}

case $1 in
up)
  for program in slurmctld slurmd srun munged; do
    command -v "$program" >/dev/null || { echo "slurm: $program is not installed" >&2; exit 1; }
  done
  [ "$(id -u)" -eq 0 ] || { echo "slurm: slurmd needs root" >&2; exit 1; }
  mkdir -p "$dir"/{state,log,spool1,spool2}
  (umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed" 2>>"$dir/log/start.log"
  read -ra ports < <(python3 -c 'import socket
all = [socket.socket() for _ in range(3)]
for s in all: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in all))')
  cat >"$conf" <<END
ClusterName=millrace
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool%n
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/log/ctld.log
SlurmdLogFile=$dir/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SlurmdParameters=config_overrides
JobRequeue=1
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=8 RealMemory=4000
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=8 RealMemory=4000
PartitionName=p Nodes=ALL Default=YES State=UP MaxTime=INFINITE
END
  mkdir -p "$dir"/spoolnode{1,2}
  slurmctld -f "$conf" 2>>"$dir/log/start.log"
  for node in node1 node2; do slurmd -f "$conf" -N "$node" 2>>"$dir/log/start.log"; done
  for _ in $(seq 150); do
    if [ "$(SLURM_CONF=$conf sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; then
      echo "SLURM_CONF=$conf"
      exit 0
    fi
    sleep 0.2
  done
  echo "slurm: the nodes do not come up; see $dir/log" >&2
  "$0" down "$dir"
  exit 1
  ;;
down)
  SLURM_CONF=$conf scancel --quiet --user=root 2>/dev/null || true
  pids=("$dir"/node1.pid "$dir"/node2.pid "$dir"/ctld.pid "$dir"/munged.pid)
  for pid in "${pids[@]}"; do kill "$(cat "$pid" 2>/dev/null)" 2>/dev/null || true; done
  ended "${pids[@]}"
  ;;
*)
  echo "slurm.sh up|down DIR" >&2
  exit 2
  ;;
esac
