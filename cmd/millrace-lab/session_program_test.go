package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
)

// freePort returns a port that no process listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Sessions of one plan follow the rivals' protocol. They reach the same loss, however the steps are divided into
// visits, and with any number of processes.
func TestSessionSpeaksTheRivalsProtocol(t *testing.T) {
	p := clitest.Trainer(t)
	m, err := model.Load("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	cut := &plan.Plan{Version: plan.Version, Model: m.Name, ModelID: m.ID(), Cluster: "local", Replication: "round_robin",
		MicroBatch: 4, MicroBatches: 4, Schedule: "1f1b", Weights: "sync", Planner: "given", Stages: []plan.Stage{
			{LastLayer: 1, Devices: []int{0}, Warmup: 2}, {FirstLayer: 2, LastLayer: len(m.Layers) - 1,
				Devices: []int{1}, Warmup: 1}}}
	job := []byte("model: mlp\ndata: digits\nbatch: 16\nplan: plan.json\n")
	if err := errors.Join(cut.Write(filepath.Join(p.Dir, "plan.json")), os.WriteFile(filepath.Join(p.Dir, "job.yaml"),
		job, 0o644)); err != nil {
		t.Fatal(err)
	}
	visit := func(requests string, env ...string) []string {
		c := p.Command(t, []string{"session", "job.yaml"})
		c.Stdin, c.Env = strings.NewReader(requests), append(c.Environ(), env...)
		text, err := c.Output()
		if err != nil {
			t.Errorf("%q: %v", requests, err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	loss := func(line string) (v struct {
		Samples int
		Seconds float64
		Loss    float64
	}) {
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return v
	}
	once, twice := visit("step 5\n"), visit("step 2\nstep 3\n")
	if len(once) != 2 || len(twice) != 3 {
		t.Fatalf("%q and %q", once, twice)
	}
	a, b := loss(once[1]), loss(twice[2])
	if a.Loss != b.Loss || a.Samples != 80 || b.Samples != 48 || a.Seconds <= 0 {
		t.Errorf("5 steps: %+v; 2 and 3: %+v", a, b)
	}
	world := []string{launch.SizeVar + "=2", launch.MasterAddrVar + "=127.0.0.1",
		launch.TokenVar + "=of two sessions here",
		fmt.Sprintf("%s=%d", launch.MasterPortVar, freePort(t))}
	others := make(chan []string)
	go func() { others <- visit("", append(world, launch.RankVar+"=1")...) }()
	apart := visit("step 5\n", append(world, launch.RankVar+"=0")...)
	if said := <-others; len(apart) != 2 || loss(apart[1]).Loss != a.Loss || len(said) != 1 || said[0] != "" {
		t.Errorf("5 steps of two processes: %q, and the second says %q; want a loss of %v", apart, said, a.Loss)
	}
	c := p.Command(t, []string{"session", "job.yaml"})
	c.Stdin = strings.NewReader("go\n")
	var exit *exec.ExitError
	if _, err := c.Output(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitBadInput {
		t.Errorf("a wrong request ends with %v", err)
	}
}
