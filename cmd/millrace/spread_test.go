package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/launch"
)

// host is a process that is started in a folder of its own, as on a host with its own disk.
type host struct {
	*exec.Cmd
	said strings.Builder
}

// hostsOf starts a process in each folder. The processes are the ranks of one run.
func hostsOf(t *testing.T, p *clitest.Program, dirs []string, line string,
	change ...func(rank int, c *exec.Cmd)) []*host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var all []*host
	for rank, dir := range dirs {
		h := &host{Cmd: p.Command(t, strings.Fields(strings.ReplaceAll(line, "mlp.json", filepath.Join(p.Dir, "mlp.json"))))}
		h.Dir = filepath.Join(p.Dir, dir)
		if err := os.MkdirAll(h.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		h.Stdout, h.Stderr = &h.said, &h.said
		h.Env = append(h.Env, fmt.Sprintf("MILLRACE_RANK=%d", rank), fmt.Sprintf("MILLRACE_WORLD_SIZE=%d", len(dirs)),
			"MILLRACE_MASTER_ADDR=127.0.0.1", fmt.Sprintf("MILLRACE_MASTER_PORT=%d", port), "MILLRACE_RUN_ID=of-"+t.Name(),
			"MILLRACE_TOKEN=what all of these processes know")
		for _, f := range change {
			f(rank, h.Cmd)
		}
		if err := h.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// end waits for processes and checks their exit codes.
func end(t *testing.T, all []*host, codes ...int) {
	t.Helper()
	for rank, h := range all {
		_ = h.Wait() // the exit code is checked below
		if code := h.ProcessState.ExitCode(); code != codes[rank] {
			t.Errorf("rank %d ends with %d; want %d\n%s", rank, code, codes[rank], h.said.String())
		}
	}
}

// in lists what is below a host's folder of checkpoints.
func in(t *testing.T, p *clitest.Program, host string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(p.Dir, host, "r/checkpoints/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], filepath.Join(p.Dir, host, "r/checkpoints")+"/")
	}
	return strings.Join(all, " ")
}

// gathered copies the files of a checkpoint to one folder.
func gathered(t *testing.T, p *clitest.Program, step string, hosts ...string) string {
	t.Helper()
	to := filepath.Join(p.Dir, "gathered", step)
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if err := exec.Command("cp", "-a", filepath.Join(p.Dir, host, "r/checkpoints", step)+"/.", to).Run(); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join("gathered", step)
}

// savedIn returns the newest step for which a host has a manifest; 0 if there is none.
func savedIn(t *testing.T, p *clitest.Program, host string) (step int) {
	t.Helper()
	for name := range strings.FieldsSeq(in(t, p, host)) {
		var n int
		if _, err := fmt.Sscanf(name, "step-%d/manifest.json", &n); err == nil {
			step = max(step, n)
		}
	}
	return step
}

// encrypted makes a process use TLS.
func encrypted(_ int, c *exec.Cmd) { c.Env = append(c.Env, launch.TLSVar+"=on") }

// Two hosts with their own disks save, and one of them is killed. Then the run continues with the two hosts exchanged,
// and ends with the same weights as a single process that never stopped. Then it continues with a third host as rank 0.
// Both times, files are sent encrypted. In the end no host has a needed file, and the run is refused.
func TestHostsWithDisksOfTheirOwn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--schedule 1f1b --save-every 50 --keep 2 --out r --steps "
	all := hostsOf(t, p, []string{"a", "b"}, line+"100000000 --split 2")
	for until := time.Now().Add(time.Minute); savedIn(t, p, "a") == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			for _, h := range all {
				_ = h.Process.Kill()
			}
			end(t, all, -1, -1)
			t.Fatalf("host a has no manifest; there are\n%s", in(t, p, "a")+"\n"+in(t, p, "b"))
		}
	}
	if err := all[1].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	end(t, all, 3, -1)
	killed, last := in(t, p, "a")+"\n"+in(t, p, "b"), savedIn(t, p, "a")+100
	earlier, latest := fmt.Sprintf("step-%08d", last-50), fmt.Sprintf("step-%08d", last)
	steps := fmt.Sprint(last)

	end(t, hostsOf(t, p, []string{"b", "a"}, line+steps+" --split 2 --resume r", encrypted), 0, 0)
	if a, b := in(t, p, "a"), in(t, p, "b"); a != strings.NewReplacer("EARLIER", earlier, "LATEST", latest).Replace(
		"EARLIER/manifest.json EARLIER/stage-001.safetensors LATEST/manifest.json LATEST/stage-001.safetensors") ||
		b != strings.ReplaceAll(a, "stage-001", "stage-000") {
		t.Errorf("there are\n%s, and\n%s; when one was killed\n%s", a, b, killed)
	}
	if code, said := started(t, p, strings.Replace(line, "--out r", "--out whole --split 1", 1)+steps); code != 0 {
		t.Fatal(said)
	}
	for _, step := range []string{latest, earlier} {
		sameTensors(t, p, "whole/checkpoints/"+step, gathered(t, p, step, "a", "b"))
	}
	// Host c is new and takes rank 0. It gets all the files that it needs from the other hosts.
	end(t, hostsOf(t, p, []string{"c", "a", "b"}, strings.Replace(line, "--out r", "--split 1 --out r", 1)+
		fmt.Sprint(last+1)+" --resume r/checkpoints", encrypted), 0, 0, 0)
	if c, to := in(t, p, "c"), fmt.Sprintf("step-%08d/", last+1); c != to+"manifest.json "+to+"stage-000.safetensors" {
		t.Errorf("the new host has %s", c)
	}
	// Host d has no checkpoint, and host a lacks a file of this one. The error names the file.
	alone := hostsOf(t, p, []string{"d", "a"}, line+fmt.Sprint(last+20)+" --split 2 --resume r/checkpoints/"+latest)
	end(t, alone, 2, 2)
	if said := alone[1].said.String(); !strings.Contains(said, latest+" lacks stage-000.safetensors") {
		t.Error(said)
	}
}

// A full disk on one host ends the run on both hosts. Both processes report the file that was not written, and rank 0
// also the host. The previous checkpoint stays on both hosts, and nothing is half-written.
func TestAFullDiskOfOneHostIsNamed(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --out r --steps "
	dirs := []string{"a", "b"}
	end(t, hostsOf(t, p, dirs, line+"4"), 0, 0)
	before := in(t, p, "a") + " " + in(t, p, "b")
	all := hostsOf(t, p, dirs, line+"8 --resume r", func(rank int, c *exec.Cmd) {
		if rank == 1 {
			c.Env = append(c.Env, "MILLRACE_TEST_FILE_LIMIT=20000")
		}
	})
	end(t, all, 1, 1)
	for rank, h := range all {
		says := "write r/checkpoints/step-00000008.partial/stage-001.safetensors: file too large"
		said := h.said.String()
		if !strings.Contains(said, says) || rank == 0 && !strings.Contains(said, "rank 1 on host ") {
			t.Errorf("rank %d:\n%s", rank, said)
		}
	}
	if after := in(t, p, "a") + " " + in(t, p, "b"); after != before {
		t.Errorf("there are\n%s; want\n%s", after, before)
	}
}

// A run that is started again continues even if rank 0 is now on another host. That host's disk has no record of the
// steps that the first rank 0 led. Then a new run of the same name overwrites the folder. Its first start fails, and
// its second start does not resume from the older run.
func TestARestartUnderOtherRanksGoesOn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --save-every 2 --out r --steps "
	again := func(_ int, c *exec.Cmd) { c.Env = append(c.Env, "MILLRACE_RESTART=1") }
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"4"), 0, 0)
	end(t, hostsOf(t, p, []string{"b", "a"}, line+"6", again), 0, 0)
	if a := in(t, p, "a"); !strings.Contains(a, "step-00000006/manifest.json step-00000006/stage-001") ||
		!strings.Contains(a, "step-00000004/stage-000") {
		t.Errorf("host a has %s", a)
	}
	// This start fails, and leaves nothing but its record.
	end(t, hostsOf(t, p, []string{"a", "b"}, strings.Replace(line, "--micro-batch 4", "--micro-batch 3", 1)+
		"2 --overwrite"), 2, 2)
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"2 --overwrite", again), 0, 0)
	for _, host := range []string{"a", "b"} {
		if got := in(t, p, host); strings.Count(got, "manifest.json") != 1 || !strings.HasPrefix(got, "step-00000002/") {
			t.Errorf("host %s has %s", host, got)
		}
	}
}

// A folder that another run has locked on one host is refused with the host's name, and does not change.
func TestAFolderIsHeldOnEveryHost(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --out r --overwrite --steps "
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"4"), 0, 0)
	held, err := os.Open(filepath.Join(p.Dir, "b", "r"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := in(t, p, "b") + in(t, p, "a")
	all := hostsOf(t, p, []string{"a", "b"}, line+"2")
	end(t, all, 2, 2)
	if said := all[0].said.String(); !strings.Contains(said, "rank 1 on host ") ||
		!strings.Contains(said, "--out r: another run is under way there") {
		t.Error(said)
	}
	if after := in(t, p, "b") + in(t, p, "a"); after != before {
		t.Errorf("there is\n%s; there was\n%s", after, before)
	}
	// Processes of one run that share a folder share its lock.
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	end(t, hostsOf(t, p, []string{"a", "b", "b"}, line+"2"), 0, 0, 0)
}

// Here host b has files of a checkpoint that only host a has committed. A new run with b but without a is refused, and
// deletes none of these files. A run with both hosts can resume from the checkpoint.
func TestWhatAnotherHostHasCommittedStays(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --out r --steps "
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"4"), 0, 0)
	at := filepath.Join(p.Dir, "b/r/checkpoints")
	if err := os.Rename(filepath.Join(at, "step-00000004"), filepath.Join(at, "step-00000004.77.partial")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(at, "step-00000004.77.partial/manifest.json")); err != nil {
		t.Fatal(err)
	}
	before := in(t, p, "b")
	another := func(_ int, c *exec.Cmd) { c.Env = append(c.Env, "MILLRACE_RUN_ID=another") }
	for _, dirs := range [][]string{{"c", "b"}, {"b", "c"}} {
		all := hostsOf(t, p, dirs, line+"2", another)
		end(t, all, 2, 2)
		if said := all[0].said.String(); !strings.Contains(said, "when an earlier run ended (step-00000004.77.partial)") {
			t.Error(said)
		}
		if after := in(t, p, "b"); after != before {
			t.Errorf("host b has\n%s; had\n%s", after, before)
		}
	}
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"6 --resume r", another), 0, 0)
	if got := in(t, p, "b"); !strings.HasPrefix(got, "step-00000004/manifest.json step-00000004/stage-001") {
		t.Errorf("host b has %s", got)
	}
}

// Here hosts a and b have checkpoints of a run, and host c has a later checkpoint of another run. If the first run is
// started again with c as a third host, it is refused and changes no host's checkpoints. With --overwrite it resumes
// from its own checkpoint.
func TestARestartGoesOnFromItsOwn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --out r --steps "
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"4"), 0, 0)
	// Host c trains alone. It gets a whole checkpoint, but of another run.
	if code, said := started(t, p, strings.Replace(line, "--out r", "--out c/r", 1)+"8"); code != 0 {
		t.Fatal(said)
	}
	again := func(_ int, c *exec.Cmd) { c.Env = append(c.Env, "MILLRACE_RESTART=1") }
	before := in(t, p, "a") + in(t, p, "b") + in(t, p, "c")
	for _, dirs := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}} {
		all := hostsOf(t, p, dirs, line+"6", again)
		end(t, all, 2, 2, 2)
		for rank, dir := range dirs {
			if said := all[rank].said.String(); dir == "c" && !strings.Contains(said, "r has checkpoints of another run than ") {
				t.Error(said)
			}
		}
		if after := in(t, p, "a") + in(t, p, "b") + in(t, p, "c"); after != before {
			t.Errorf("there is\n%s; there was\n%s", after, before)
		}
	}
	all := hostsOf(t, p, []string{"a", "b", "c"}, line+"6 --overwrite", again)
	end(t, all, 0, 0, 0)
	if said := all[0].said.String(); !strings.Contains(said, "goes on from r/checkpoints/step-00000004\n") {
		t.Error(said)
	}
	if a := in(t, p, "a"); !strings.Contains(a, "step-00000004/manifest.json") {
		t.Errorf("host a has %s", a)
	}
}

// If a host that joins has checkpoints of another training in its folder, it is refused, and its checkpoints stay. A
// file that is damaged on one host is read from another host where it is whole.
func TestAHostThatJoinsKeepsItsOwnTraining(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --out r --steps "
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"4"), 0, 0)
	end(t, hostsOf(t, p, []string{"c", "d"}, line+"2"), 0, 0)
	before := in(t, p, "c")
	for from, says := range map[string]string{"r": "has checkpoints of another training there than rank 0 on host ",
		"r/checkpoints/step-00000004": "r has checkpoints of another run than "} {
		all := hostsOf(t, p, []string{"a", "b", "c"}, line+"6 --keep 1 --resume "+from)
		end(t, all, 2, 2, 2)
		if said := all[2].said.String(); !strings.Contains(said, says) {
			t.Error(said)
		}
	}
	if after := in(t, p, "c"); after != before {
		t.Errorf("host c has\n%s; had\n%s", after, before)
	}
	const file = "r/checkpoints/step-00000004/stage-001.safetensors"
	text, err := os.ReadFile(filepath.Join(p.Dir, "b", file))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, "a", file), text, 0o644)
	}
	if err == nil {
		text[len(text)-1] ^= 1
		err = os.WriteFile(filepath.Join(p.Dir, "b", file), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"6 --resume r"), 0, 0)
}
