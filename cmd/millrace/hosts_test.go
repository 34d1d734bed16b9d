package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/place"
)

// doctor measures the links between processes over every carrier. The cluster that it writes can be used for
// planning and training.
func TestDoctorMeasuresLinks(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	code, out := started(t, p, "launch -n 2 -- doctor --links -o cluster.yaml")
	if code != 0 || strings.Contains(out, "[1] ") {
		t.Fatalf("code %d\n%s", code, out)
	}
	for _, want := range []string{"in a process   memory ", "inside a host  tcp  ", "inside a host  tcp with TLS ",
		"rank 0 on host ", "wrote cluster.yaml"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	c, err := cluster.Read(filepath.Join(p.Dir, "cluster.yaml"))
	if err != nil || len(c.Devices) != 2 || len(c.Levels) != 1 || c.MemoryBytes(0) == 0 || c.InOneMemory(0, 1) {
		t.Fatalf("%+v, %v", c, err)
	}
	c.PerHost = []int{1}
	if err := c.Write(filepath.Join(p.Dir, "other.yaml")); err != nil {
		t.Fatal(err)
	}
	// A memory limit for each worker may exceed a worker's share of its host's memory.
	limit := fmt.Sprintf(" --memory-limit %dMiB", c.MemoryBytes(0)*6/5>>20)
	const on = "--model mlp --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --cluster "
	for _, line := range []string{"plan " + on + "cluster.yaml -o plan.json", "plan " + on + "other.yaml -o other.json",
		"launch -n 2 -- " + small + "two --cluster cluster.yaml", "launch -n 2 -- " + small + "planned --plan plan.json",
		"launch -n 2 -- " + small + "limited" + limit, "launch -n 2 -- " + small + "again --plan limited/plan.json" + limit} {
		if code, out := started(t, p, line); code != 0 {
			t.Errorf("%s: code %d\n%s", line, code, out)
		}
	}
	for line, want := range map[string]string{
		"launch -n 3 -- " + small + "three --cluster cluster.yaml": "cluster measured has 2 devices; here: " +
			"3 workers on host ",
		"launch -n 2 -- " + small + "four --plan other.json": "the plan in other.json is for other hosts: cluster " +
			"measured is 2 hosts of 1 device; here are 2 workers on host ",
		"doctor -o cluster.yaml": "--out cluster.yaml is for what --links measures",
		"train --model mlp --data digits --cluster dgx-a100 --out far": "a run trains on the cores of its hosts, which " +
			"--cluster describes: leave it out",
	} {
		if code, out := started(t, p, line); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, want %q in\n%s", line, code, want, out)
		}
	}
}

// A single process can train on the cluster that doctor wrote for it.
func TestOneProcessTrainsOnItsOwnCluster(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	if code, out := started(t, p, "doctor --links -o own.yaml"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	c, err := cluster.Read(filepath.Join(p.Dir, "own.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) < 2 {
		t.Skip("one core")
	}
	if code, out := started(t, p, small+"own --cluster own.yaml --workers 2"); code != 0 {
		t.Errorf("code %d\n%s", code, out)
	}
}

// Two hosts with different numbers of cores are each measured, and planned for accordingly. They reach the same bits as
// one worker.
func TestUnequalHostsTrainTogether(t *testing.T) {
	t.Parallel()
	taskset, err := exec.LookPath("taskset")
	allowed := place.Allowed()
	if err != nil || len(allowed) < 2 {
		t.Skip("taskset, and two processors, make unequal hosts: ", err, allowed)
	}
	p := profiled(t)
	if code, out := started(t, p, small+"one --workers 1 --stages 1"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	line := strings.Replace(small, "--profile mlp.json ", "", 1) + "two"
	host := func(rank int, name, processors string) *exec.Cmd {
		c := p.Command(t, strings.Fields(line))
		c.Args = slices.Concat([]string{"taskset", "-c", processors, c.Path}, c.Args[1:])
		c.Path = taskset
		c.Env = append(c.Env, "MILLRACE_WORLD_SIZE=2", fmt.Sprint("MILLRACE_RANK=", rank), "MILLRACE_MASTER_ADDR=127.0.0.1",
			"MILLRACE_MASTER_PORT="+port, "MILLRACE_TOKEN=0123456789abcdef", "MILLRACE_RUN_ID="+t.Name(),
			"MILLRACE_LOCAL_RANK=0", "MILLRACE_LOCAL_SIZE=1", "MILLRACE_NODES=2", fmt.Sprint("MILLRACE_NODE=", rank),
			"MILLRACE_HOST="+name)
		return c
	}
	small := host(1, "small", fmt.Sprint(allowed[1]))
	small.Stderr = os.Stderr
	if err := small.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := host(0, "big", fmt.Sprintf("%d,%d", allowed[0], allowed[1])).CombinedOutput()
	if ended := small.Wait(); err != nil || ended != nil {
		t.Fatalf("rank 0: %v, rank 1: %v\n%s", err, ended, out)
	}
	for _, want := range []string{"host big: 1 worker, ", "host small: 1 worker, ", "link between hosts: "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	measured, err := profile.Read(filepath.Join(p.Dir, "two/profile.json"))
	if err != nil || len(measured.DeviceTypes()) != 2 || len(measured.Machines) != 2 {
		t.Errorf("the profile: %v, of %v", err, measured.DeviceTypes())
	}
	page, err := os.ReadFile(filepath.Join(p.Dir, "two/report.html"))
	for _, want := range []string{"<dt>engine</dt><dd>torch ", "big: 1 worker, ", "small: 1 worker, "} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report does not say %q (%v)", want, err)
		}
	}
	if pl, err := plan.Read(filepath.Join(p.Dir, "two/plan.json")); err != nil || len(pl.Devices()) != 2 {
		t.Errorf("the plan: %v, %v", err, pl)
	}
	sameTensors(t, p, "one/checkpoints", "two/checkpoints")
}
