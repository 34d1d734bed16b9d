package manifest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// marked runs a command and leaves a mark where it fails: a file with the code, $0.again where another start
// may help, or $0.final. The launcher's own code is some process's, often another's than the one that failed
// first, or all of them together. Signals go to the command; the shell waits for what it says.
const marked = `'trap : HUP INT TERM; "$@"; code=$?
case $code in 0) ;; %s) echo $code >"$0.again";; *) echo $code >"$0.final";; esac; exit $code'`

// readMarks gives a script the code that counts, and says whether another start may help. Where no process
// has left a mark, the launcher has failed.
const readMarks = `again=
if [ -e "$mark.final" ]; then
  read -r code <"$mark.final"
elif [ -e "$mark.again" ]; then
  read -r code <"$mark.again"
  again=1
fi
rm -f "$mark.final" "$mark.again"
`

// codes is exit codes as a pattern of the shell.
func codes(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", "|"), "[]")
}

// quoted is a text as a word of the shell.
func quoted(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./:=,@%+",
			c))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// commandLine is the command as words of the shell.
func (s *Spec) commandLine() string {
	var quotes []string
	for _, arg := range s.Command {
		quotes = append(quotes, quoted(arg))
	}
	return strings.Join(quotes, " ")
}

// bash refuses what is for pods alone.
func (s *Spec) bash() error {
	if s.Image != "" || s.Claim != "" || len(s.Files) > 0 || len(s.Selector) > 0 || s.Namespace != "" || s.Secret != "" {
		return errors.New("image, volume claim, files, node selector, namespace and secret are for Kubernetes")
	}
	return nil
}

// slurm is a script for sbatch.
func slurm(s *Spec) (string, error) {
	if err := s.bash(); err != nil {
		return "", err
	}
	if s.MPI != "" {
		return "", fmt.Errorf("MPI is %q; srun starts the processes", s.MPI)
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n" +
		"# Written by millrace manifest slurm; submit it with sbatch, from a folder that all hosts share.\n")
	for _, option := range s.sbatch() {
		b.WriteString("#SBATCH " + option + "\n")
	}
	b.WriteString("set -u\n")
	if s.TokenFile != "" {
		fmt.Fprintf(&b, "export %s=%s\n", launch.TokenFileVar, quoted(s.TokenFile))
	}
	fmt.Fprintf(&b, "mark=$PWD/.%s-$SLURM_JOB_ID\nrm -f \"$mark.final\" \"$mark.again\"\n", s.Name)
	how := "--kill-on-bad-exit=0"
	if s.Cores > 0 {
		how += fmt.Sprintf(" --cpus-per-task=%d", s.Cores) // which srun does not take over from sbatch
	}
	if !s.even() {
		var counts []string
		for _, h := range s.Hosts {
			counts = append(counts, fmt.Sprint(h.Processes))
		}
		fmt.Fprintf(&b, `export SLURM_HOSTFILE=$PWD/.%s-$SLURM_JOB_ID.hosts
processes=(%s)
scontrol show hostnames "$SLURM_JOB_NODELIST" | for n in "${processes[@]}"; do
  read -r host
  for ((i = 0; i < n; i++)); do echo "$host"; done
done >"$SLURM_HOSTFILE"
`, s.Name, strings.Join(counts, " "))
		how += " --distribution=arbitrary"
	}
	fmt.Fprintf(&b, "srun %s bash -c "+marked+" \"$mark\" \\\n  %s\ncode=$?\n", how, codes(launch.Again), s.commandLine())
	if !s.even() {
		b.WriteString("rm -f \"$SLURM_HOSTFILE\"\n")
	}
	b.WriteString(readMarks)
	if s.Restarts > 0 {
		fmt.Fprintf(&b, "if [ -n \"$again\" ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt %d ]; then\n", s.Restarts)
		b.WriteString("  scontrol requeue \"$SLURM_JOB_ID\"\nfi\n")
	}
	b.WriteString("exit \"$code\"\n")
	return b.String(), nil
}

// sbatch is the options of a script for sbatch.
func (s *Spec) sbatch() []string {
	options := []string{"--job-name=" + s.Name, fmt.Sprintf("--nodes=%d", len(s.Hosts)), fmt.Sprintf("--ntasks=%d",
		s.processes())}
	if s.even() {
		options = append(options, fmt.Sprintf("--ntasks-per-node=%d", s.most()))
	}
	if s.Hosts[0].Name != "" {
		var names []string
		for _, h := range s.Hosts {
			names = append(names, h.Name)
		}
		options = append(options, "--nodelist="+strings.Join(names, ","))
	}
	if s.Cores > 0 {
		options = append(options, fmt.Sprintf("--cpus-per-task=%d", s.Cores))
	}
	if s.MemoryBytes > 0 {
		const mebibyte = 1 << 20
		each := (s.MemoryBytes + mebibyte - 1) / mebibyte
		options = append(options, fmt.Sprintf("--mem=%dM", each*int64(s.most())))
	}
	if s.Limit > 0 {
		options = append(options, "--time="+slurmTime(s.Limit))
	}
	options = append(options, fmt.Sprintf("--signal=TERM@%d", int64(s.Grace.Seconds())))
	if s.Restarts > 0 {
		options = append(options, "--requeue")
	}
	return append(options, "--open-mode=append")
}

// slurmTime is a time as Slurm has it, in whole seconds, rounded up.
func slurmTime(d time.Duration) string {
	n := int64((d + time.Second - 1) / time.Second)
	return fmt.Sprintf("%d-%02d:%02d:%02d", n/86400, n/3600%24, n/60%60, n%60)
}

// mpirun is a script that starts mpirun, and starts it again.
func mpirun(s *Spec) (string, error) {
	if err := s.bash(); err != nil {
		return "", err
	}
	if s.Cores > 0 || s.MemoryBytes > 0 {
		return "", errors.New("mpirun gives out no cores and no memory; leave them out")
	}
	how, err := s.mpi()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n# Written by millrace manifest mpirun; run it in a folder that all hosts share.\nset -u\n")
	if s.TokenFile != "" {
		fmt.Fprintf(&b, "export %s=%s\n", launch.TokenFileVar, quoted(s.TokenFile))
	}
	if name := s.Hosts[0].Name; name != "" && len(s.Hosts) > 1 {
		fmt.Fprintf(&b, "export %s=%s\n", launch.MasterAddrVar, quoted(name))
	}
	limit, over := "", ""
	if s.Limit > 0 {
		over = "  [ \"$code\" -ne 124 ] || stopped=1 # the time is over\n"
		limit = fmt.Sprintf("timeout --signal=TERM --kill-after=%d %d ", 2*int64(s.Grace.Seconds())+graceOfMPI,
			int64(s.Limit.Seconds()))
	}
	fmt.Fprintf(&b, `export %s=%s-$$
mark=$PWD/.%s-$$
rm -f "$mark.final" "$mark.again"
child= stopped=
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child"' HUP INT TERM
for ((start = 0; ; start++)); do
  export %s=$start
  %s%s bash -c `+marked+` "$mark" \
    %s &
  child=$!
  while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
%s%s  if [ -z "$again" ] || [ -n "$stopped" ] || [ "$start" -ge %d ]; then
    exit "$code"
  fi
done
`, launch.RunIDVar, s.Name, s.Name, launch.RestartVar, limit, how, codes(launch.Again), s.commandLine(), over,
		indented(readMarks), s.Restarts)
	return b.String(), nil
}

// indented is lines of a script within a loop.
func indented(lines string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n  ") + "\n"
}

// graceOfMPI is the seconds that mpirun itself has, behind its processes'. Open MPI waits as long before it
// sends SIGTERM as between that and SIGKILL; MPICH waits for its processes.
const graceOfMPI = 10

// mpi is the command that starts the processes.
func (s *Spec) mpi() (string, error) {
	named := s.Hosts[0].Name != ""
	if !named && len(s.Hosts) > 1 && !s.even() {
		return "", errors.New("hosts have unequal numbers of processes; name the hosts")
	}
	var hosts []string
	for _, h := range s.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s:%d", h.Name, h.Processes))
	}
	switch s.MPI {
	case "", OpenMPI:
		how := fmt.Sprintf("env OMPI_MCA_odls_base_sigkill_timeout=%d mpirun -np %d --bind-to none",
			int64(s.Grace.Seconds()), s.processes())
		switch {
		case named:
			how += " --host " + strings.Join(hosts, ",")
		case len(s.Hosts) > 1:
			how += fmt.Sprintf(" --map-by ppr:%d:node", s.most())
		default:
			how += " --map-by slot:OVERSUBSCRIBE"
		}
		for _, name := range []string{launch.TokenFileVar, launch.MasterAddrVar, launch.RunIDVar, launch.RestartVar} {
			if name == launch.TokenFileVar && s.TokenFile == "" || name == launch.MasterAddrVar && !(named && len(s.Hosts) > 1) {
				continue
			}
			how += " -x " + name
		}
		return how, nil
	case MPICH:
		how := fmt.Sprintf("mpiexec.hydra -n %d", s.processes())
		switch {
		case named:
			how += " -hosts " + strings.Join(hosts, ",")
		case len(s.Hosts) > 1:
			how += fmt.Sprintf(" -ppn %d", s.most())
		}
		return how, nil
	}
	return "", fmt.Errorf("MPI is %q; it is %s or %s", s.MPI, OpenMPI, MPICH)
}
