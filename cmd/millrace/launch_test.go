package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
)

// started runs a command with additional variables, and returns its exit code and output.
func started(t *testing.T, p *clitest.Program, line string, env ...string) (code int, out string) {
	t.Helper()
	c := p.Command(t, strings.Fields(line))
	c.Env = append(c.Env, env...)
	text, _ := c.CombinedOutput() // the exit code is the result
	return c.ProcessState.ExitCode(), string(text)
}

// unwrapped joins the continuation lines of processes' prose to their first lines, even if lines of several
// processes are mixed.
func unwrapped(out string) string {
	prefixed := regexp.MustCompile(`^(\[[^\]]*\] )( *)(.*)$`)
	last := map[string]int{}
	var all []string
	for line := range strings.SplitSeq(out, "\n") {
		found := prefixed.FindStringSubmatch(line)
		if found == nil {
			all = append(all, line)
		} else if at, known := last[found[1]]; known && found[2] != "" {
			all[at] += " " + found[3]
		} else {
			last[found[1]], all = len(all), append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// Every process knows its rank, and each line of its output begins with the rank.
func TestLaunchStartsProcesses(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	code, out := started(t, p, "launch -n 3 -- doctor")
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	met := map[string]bool{}
	for _, rank := range []string{"0", "1", "2"} {
		line := regexp.MustCompile(`(?m)^\[` + rank + `\] ok  launcher +rank ` + rank + ` of 3, ` + rank +
			` of 3 on its host, started by millrace launch; ` +
			`3 workers in all, 1 in each process; rank 0 is met at (127\.0\.0\.1:\d+), token in variable MILLRACE_TOKEN$`)
		found := line.FindStringSubmatch(unwrapped(out))
		if found == nil {
			t.Fatalf("rank %s does not say who it is:\n%s", rank, out)
		}
		met[found[1]] = true
	}
	if len(met) != 1 {
		t.Errorf("the processes meet at %v", met)
	}
}

// JSON output is valid if several processes print it, and if only rank 0 does.
func TestLaunchedDoctorPrintsJSON(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	c := p.Command(t, strings.Fields("launch -n 2 -- doctor --json"))
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	ranks := map[int]bool{}
	for line := range strings.Lines(string(out)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Host == "" || len(r.Findings) < 3 {
			t.Errorf("%q: %v", line, err)
		}
		ranks[r.Rank] = true
	}
	if len(ranks) != 2 || !ranks[0] || !ranks[1] {
		t.Errorf("ranks %v", ranks)
	}
	c = p.Command(t, strings.Fields("launch -n 2 -- doctor --links --log json --json"))
	var rows []hosts.Row
	if out, err = c.Output(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// The launcher reports the first failure, and ends with its exit code.
func TestLaunchEndsWithTheFirstCause(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	code, out := started(t, p, "launch -n 2 --restarts 3 -- train --model mlp --data digits")
	// Rank 1 either has the same error itself, which is then not printed again, or reports rank 0's error under rank
	// 0's name.
	if n := strings.Count(out, "engine torch: "); code != 2 || n < 1 || n > 2 ||
		!regexp.MustCompile(`millrace: launch: rank [01] ended with exit code 2, after`).MatchString(out) {
		t.Errorf("code %d\n%s", code, out)
	}
}

// otherHosts makes a folder with an ssh that runs commands for other hosts on this host. The ssh fails for the host
// that the file $GONE names. It adds its arguments to the file `told`.
func otherHosts(t *testing.T) (path, told string) {
	t.Helper()
	dir := t.TempDir()
	told = filepath.Join(dir, "told")
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(`#!/bin/sh
echo "$*" >>'`+told+`'
while [ "$1" != -- ]; do shift; done
export ON=$2
[ "$ON" != "$(cat "$GONE" 2>/dev/null)" ] || exit 255
shift 2
exec sh -c "$*"
`), 0o755); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), told
}

// With --hosts, every process knows its host, and no command line has the token.
func TestLaunchOverHosts(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	const secret = "0123456789-the-token"
	if err := os.WriteFile(filepath.Join(p.Dir, "token"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, told := otherHosts(t)
	code, out := started(t, p, "launch --hosts a,u@b:2 -n 3 --workers-per-process 2 --token-file token -- doctor", path)
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	said := unwrapped(out)
	for _, where := range []string{`[0 a] ok  launcher  rank 0 of 3, 0 of 1 on its host a,`,
		`[1 b] ok  launcher  rank 1 of 3, 0 of 2 on its host b,`,
		`[2 b] ok  launcher  rank 2 of 3, 1 of 2 on its host b,`} {
		if !strings.Contains(said, where+" started by millrace launch; 6 workers in all, 2 in each process; "+
			"rank 0 is met at a:") {
			t.Errorf("no %q in\n%s", where, out)
		}
	}
	text, err := os.ReadFile(told)
	if said := string(text); err != nil || strings.Count(said, "\n") != 2 || strings.Contains(said, secret) ||
		strings.Contains(said, "MILLRACE_") {
		t.Errorf("ssh is told %q (%v)", said, err)
	}
	code, out = started(t, p, "launch --hosts a --executable /no/millrace -- doctor", path)
	if code != 2 || !strings.Contains(out, "host a cannot be used: ssh: exit status 127: ") ||
		!strings.Contains(out, "the same millrace at /no/millrace") {
		t.Errorf("code %d\n%s", code, out)
	}
}

func TestWhatLaunchRefuses(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Dir, "open"), []byte("0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"launch -n 2":                                 "give the verb to start after --",
		"launch -n 2 doctor":                          "give the verb to start after --",
		"launch -n 2 --":                              "give the verb to start after --",
		"launch -n 2 doctor -- --json":                "give the verb to start after --",
		"launch -n 2 -- millrace train":               `leave "millrace" out`,
		"launch -n 2 -- plan --model mlp":             `"plan" is not started in several processes; train and doctor are`,
		"launch -n 0 -- doctor":                       "--processes is 0",
		"launch -n 3 -- train --bathc 3":              "millrace: there is no flag --bathc; did you mean --batch?",
		"launch --restarts -1 -- doctor":              "--restarts is -1",
		"launch --token-file open -- doctor":          "can be read or changed by others",
		"launch --token-file none -- doctor":          "token: there is no ",
		"launch -n two -- doctor":                     `--processes is "two"; give a whole number`,
		"launch -n 3 --hosts a:2,b:2 -- doctor":       "--processes is 3, and --hosts a:2,b:2 has 4",
		"launch --hosts a:2,-oProxyCommand -- doctor": `--hosts: "-oProxyCommand" is no host`,
		"launch --workers-per-process 0 -- doctor":    "--workers-per-process is 0",
		"launch --executable millrace -- doctor":      "--executable is millrace; give a whole path",
		"RANK=0 WORLD_SIZE=2 launch -- doctor": "rank 0 of 2, started by torchrun, and would " +
			"start 1 in each of those",
		"SLURM_PROCID=x SLURM_STEP_ID=0 SLURM_NTASKS=2 launch -- doctor": "SLURM_PROCID=x; it is a whole number",
	} {
		var env []string
		words := strings.Fields(line)
		for strings.Contains(words[0], "=") {
			env, words = append(env, words[0]), words[1:]
		}
		if slices.Contains(env, "RANK=0") {
			env = append(env, "MASTER_ADDR=a")
		}
		if code, out := started(t, p, strings.Join(words, " "), env...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d\n%s\nwant %q", line, code, out, want)
		}
	}
}

// TestLaunchedProcessesRefuseInputOnce: rank 0 refuses the job and prints why. The other processes print only that rank
// 0 has refused it. If the verb does not have a given flag, the launcher starts no process.
func TestLaunchedProcessesRefuseInputOnce(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	for args, want := range map[string]string{
		"train --model mpl --data digits":           `there is no model "mpl"; did you mean mlp?`,
		"train --model mlp --data digits --lr x":    `--lr is "x"; give a number`,
		"train --model mlp --data digits --bathc 3": "there is no flag --bathc; did you mean --batch?",
	} {
		code, out := started(t, p, "launch -n 3 -- "+args)
		if n := strings.Count(out, want); code != 2 || n != 1 {
			t.Errorf("%s: code %d, and %d times %q:\n%s", args, code, n, want, out)
		}
		others := regexp.MustCompile(`(?m)^\[[12]\] .* has refused its input, as its own line says$`).FindAllString(out, -1)
		if started := strings.Contains(out, "launch: rank "); started == strings.Contains(args, "bathc") ||
			started && len(others) != 2 {
			t.Errorf("%s: the others say %q:\n%s", args, others, out)
		}
	}
}

// A signal reaches the launched processes. They finish their step, save, and print the whole command that resumes the
// run.
func TestLaunchHandsSignalsOn(t *testing.T) {
	p := profiled(t)
	const line = "launch -n 2 --restarts 2 -- train --model mlp --data digits --profile mlp.json --batch 4 --stages 2 " +
		"--steps 100000000 --eval-rows 8 --out run"
	c := p.Command(t, strings.Fields(line+" --overwrite"))
	var stdout strings.Builder
	c.Stdout = &stdout
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said, told := "", false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "step 1/") && !told {
			told = true
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 143 || !strings.Contains(said,
		"SIGTERM: telling all processes to stop") ||
		!strings.Contains(said, "SIGTERM: finishing the step and saving") || !strings.Contains(p.List(t, "run"),
		"checkpoints") {
		t.Errorf("code %d\n%s", code, said)
	}
	if want := "goes on     millrace " + line + " --resume run/checkpoints\n"; !strings.Contains(stdout.String(), want) {
		t.Errorf("no %q in\n%s", want, stdout.String())
	}
}
