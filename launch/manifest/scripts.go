package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// marked returns the definition of a shell variable for the scripts. Its value is a shell command that runs another
// command. If the other command fails, the shell writes its exit code to one of three files: $0.again if another start
// may help, $0.stopped if the process was told to stop, otherwise $0.final. A signal to the process group reaches both
// the shell and the other command. The shell survives the signal and waits for the other command.
func marked() string {
	lost := slices.DeleteFunc(slices.Clone(launch.Again), func(code int) bool {
		return slices.Contains(launch.Stopped, code)
	})
	return fmt.Sprintf(`# A process that fails leaves its code in a file: the launcher's own is some other's, or all of them together.
marked='trap : HUP INT TERM; "$@"; code=$?
case $code in 0) exit;; %s) kind=again;; %s) kind=stopped;; *) kind=final;; esac
echo $code >"$0.$kind"; exit $code'
`, codes(lost), codes(launch.Stopped))
}

// readMarks is the part of a script that sets $code to the exit code that counts, and $again if another start may help.
// It reads the file of a process that has failed for good, if there is one. Otherwise it reads the file of a process
// after whose failure another start may help. If processes were only told to stop, the user or the time limit has
// stopped the run, and no other start helps. If no process left a file, the launcher itself has failed.
const readMarks = `again=
for kind in final again stopped; do
  if [ -e "$mark.$kind" ]; then
    read -r code <"$mark.$kind"
    [ $kind != again ] || again=1
    break
  fi
done
rm -f "$mark".{final,again,stopped}
`

// codes returns exit codes as a shell pattern.
func codes(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", "|"), "[]")
}

// quoted returns a text as a word of the shell.
func quoted(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./:=,@%+",
			c))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// commandLine returns the command as words of the shell.
func (s *Spec) commandLine() string {
	var quotes []string
	for _, arg := range s.Command {
		quotes = append(quotes, quoted(arg))
	}
	return strings.Join(quotes, " ")
}

// exports returns the lines of a script that set variables.
func (s *Spec) exports() string {
	var b strings.Builder
	if s.TokenFile != "" {
		fmt.Fprintf(&b, "export %s=%s\n", launch.TokenFileVar, quoted(s.TokenFile))
	}
	if s.TLS {
		fmt.Fprintf(&b, "export %s=%s\n", launch.TLSVar, launch.TLSOn)
	}
	return b.String()
}

// metAt returns the line of a script that sets the address of rank 0. A value set by the user is kept.
func metAt(host string) string {
	return fmt.Sprintf("export %s=${%[1]s:-%s}\n", launch.MasterAddrVar, host)
}

// bash refuses settings that are only for Kubernetes. It also refuses unnamed hosts of different types, since the
// scheduler may swap them.
func (s *Spec) bash() error {
	if s.Image != "" || s.Claim != "" || len(s.Files) > 0 || len(s.Selector) > 0 || s.Namespace != "" || s.Secret != "" {
		return errors.New("image, volume claim, files, node selector, namespace and secret are for Kubernetes")
	}
	if mixed := s.mixed(); mixed != nil && !s.named() {
		return fmt.Errorf("%w, and any host may be taken for either; name the hosts", mixed)
	}
	return nil
}

// late is how long Slurm lets processes go on after the first process has ended, not counting the grace after a stop.
// Rank 0 may still be writing results when the others are done. A process that hangs must not hold the job until its
// time limit.
const late = 5 * time.Minute

// slurm returns a script for sbatch.
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
	b.WriteString("set -u\n" + s.exports())
	fmt.Fprintf(&b, "%smark=$PWD/.%s-$SLURM_JOB_ID\nrm -f \"$mark\".{final,again,stopped}\n", marked(), s.Name)
	how := fmt.Sprintf("--kill-on-bad-exit=0 --wait=%d", int64((s.Grace + late).Seconds()))
	if s.Cores > 0 {
		how += fmt.Sprintf(" --cpus-per-task=%d", s.Cores) // srun does not inherit this option from sbatch
	}
	if s.arranged() {
		b.WriteString(s.hostfile())
		how += " --distribution=arbitrary"
	}
	fmt.Fprintf(&b, "srun %s bash -c \"$marked\" \"$mark\" \\\n  %s\ncode=$?\n", how, s.commandLine())
	if s.arranged() {
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

// arranged says whether srun must be given the host of each rank. By default srun sorts the hosts, whatever the
// order in a list. It also divides processes according to the cores that Slurm has assigned.
func (s *Spec) arranged() bool { return len(s.Hosts) > 1 && (s.named() || !s.even()) }

// hostfile returns the lines of a script that write the host of each rank into a file. Unnamed hosts are all of one
// type, and are taken in sorted order. Rank 0's address is then read from that file, since Slurm's own lists are
// sorted. An address set by the user is kept.
func (s *Spec) hostfile() string {
	var named, counts string
	for _, h := range s.Hosts {
		named += fmt.Sprintf(" %s %d", h.Name, h.Processes)
		counts += fmt.Sprintf(" %d", h.Processes)
	}
	from := `printf '%s %s\n'` + named
	if !s.named() {
		from = `scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -d ' ' - <(printf '%s\n'` + counts + ")"
	}
	return "export SLURM_HOSTFILE=$mark.hosts\n" + from + ` | while read -r host n; do
  for ((i = 0; i < n; i++)); do echo "$host"; done
done >"$SLURM_HOSTFILE"
` + metAt(`$(head -n 1 "$SLURM_HOSTFILE")`)
}

// sbatch returns the options of a script for sbatch.
func (s *Spec) sbatch() []string {
	options := []string{"--job-name=" + s.Name, fmt.Sprintf("--nodes=%d", len(s.Hosts)), fmt.Sprintf("--ntasks=%d",
		s.processes())}
	if s.even() {
		options = append(options, fmt.Sprintf("--ntasks-per-node=%d", s.most()))
	} else {
		// With unequal hosts Slurm would assign cores for a different division of processes. So whole hosts are
		// requested, each with enough cores for the largest number of processes.
		options = append(options, "--exclusive", fmt.Sprintf("--mincpus=%d", s.most()*max(1, s.Cores)))
	}
	if s.named() {
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

// slurmTime returns a time in Slurm's format, in whole seconds, rounded up.
func slurmTime(d time.Duration) string {
	n := int64((d + time.Second - 1) / time.Second)
	return fmt.Sprintf("%d-%02d:%02d:%02d", n/86400, n/3600%24, n/60%60, n%60)
}

// mpirun returns a script that starts mpirun, and starts it again after a failure.
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
	b.WriteString(s.exports())
	if s.named() && len(s.Hosts) > 1 {
		b.WriteString(metAt(s.Hosts[0].Name))
	}
	watch := ""
	if s.MPI == MPICH {
		watch = fmt.Sprintf(`  while kill -0 "$child"; do # Hydra waits for processes that hang as long as they do
    sleep 1
    ! compgen -G "$mark.*" || [ $((failed += 1)) -ne %d ] || kill -TERM "$child"
  done >/dev/null 2>&1 &
`, int64((s.Grace + notice).Seconds()))
	}
	fmt.Fprintf(&b, `export %s=%s-$$
%smark=$PWD/.%s-$$
rm -f "$mark".{final,again,stopped}
child= stopped= failed=0 limit=%d
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child"' HUP INT TERM
for ((start = 0; ; start++)); do
  export %s=$start
  began=$SECONDS
  timeout --foreground --signal=TERM --kill-after=%d $limit %s bash -c "$marked" "$mark" \
    %s &
  child=$!
%s  while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
  [ $limit -eq 0 ] || [ $((SECONDS - began)) -lt $limit ] || stopped=1 # the time is over
%s  if [ -z "$again" ] || [ -n "$stopped" ] || [ "$start" -ge %d ]; then
    exit "$code"
  fi
done
`, launch.RunIDVar, s.Name, marked(), s.Name, int64(s.Limit.Seconds()), launch.RestartVar,
		int64((2*s.Grace + graceOfMPI).Seconds()), how, s.commandLine(), watch, indented(readMarks), s.Restarts)
	return b.String(), nil
}

// notice is the time after a failure, in addition to Spec.Grace, until the script tells Hydra to stop the processes
// that still run.
var notice = 15 * time.Second

// indented indents lines of a script for the body of a loop.
func indented(lines string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n  ") + "\n"
}

// graceOfMPI is how long mpirun itself may take to end after its processes. Before it kills mpirun, the script waits
// for this time and for twice the grace. Open MPI waits for the grace before SIGTERM, and once more between SIGTERM and
// SIGKILL. MPICH waits for its processes.
var graceOfMPI = 10 * time.Second

// mpi returns the command that starts the processes.
func (s *Spec) mpi() (string, error) {
	if !s.named() && len(s.Hosts) > 1 && !s.even() {
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
		case s.named():
			how += " --host " + strings.Join(hosts, ",")
		case len(s.Hosts) > 1:
			how += fmt.Sprintf(" --map-by ppr:%d:node", s.most())
		default:
			how += " --map-by slot:OVERSUBSCRIBE"
		}
		// Other hosts get only the variables that are named here: millrace's, including those that the user set on
		// this host.
		return how + " $(compgen -e MILLRACE_ | sed 's/^/-x /')", nil
	case MPICH:
		how := fmt.Sprintf("mpiexec.hydra -n %d", s.processes())
		switch {
		case s.named():
			how += " -hosts " + strings.Join(hosts, ",")
		case len(s.Hosts) > 1:
			how += fmt.Sprintf(" -ppn %d", s.most())
		}
		return how, nil
	}
	return "", fmt.Errorf("MPI is %q; it is %s or %s", s.MPI, OpenMPI, MPICH)
}
