package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// rowsOf returns each worker's computations in order: "F0@0" begins at 0.
func rowsOf(t *testing.T, s *shape) ([]string, *trace.Timeline) {
	t.Helper()
	p, _, err := s.program()
	if err != nil {
		t.Fatal(err)
	}
	line, _, err := s.play(p, true)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]string, p.Workers)
	for _, e := range line.Events {
		if e.Kind == "F" || e.Kind == "B" {
			f, _ := trace.ParseFields(e.Instruction)
			rows[e.Worker] += fmt.Sprintf(" %s%d@%g", e.Kind, f.Micro, e.StartS)
		}
	}
	return rows, line
}

// TestFigure8OfPipeDream: 1F1B-RR on 2-1, as in §3.2 and the caption of Fig. 8, worked out by hand. Stage 0 has two
// replicas and stage 1 has one. A forward or a backward takes two units on stage 0 and one on stage 1. NOAM, the
// minibatches in flight for each replica of the input stage, is ceil(3/2) = 2. Worker 0 gets even minibatches, worker 1
// odd ones, worker 2 all. Forwards and backwards alternate. Here a pair of minibatches shares one update, so that
// worker 0's third forward waits for B1 of worker 1.
func TestFigure8OfPipeDream(t *testing.T) {
	s := &shape{family: "1f1b-rr", replicas: []int{2, 1}, workers: 3, chunks: 1, micros: 1, minibatches: 8,
		elastic:   elastic{alpha: -1},
		staleness: -1, times: times{forward: []float64{2, 1}, backward: []float64{2, 1}}}
	rows, _ := rowsOf(t, s)
	for w, want := range []string{
		" F0@0 F2@2 B0@4 F4@8 B2@10 F6@12 B4@14 B6@16", // a backward never waits for weights
		" F1@0 F3@2 B1@6 F5@8 B3@10 F7@12 B5@14 B7@18",
		" F0@2 B0@3 F1@4 B1@5 F2@6 B2@7 F3@8 B3@9 F4@10 B4@11 F5@12 B5@13 F6@14 B6@15 F7@16 B7@17",
	} {
		if rows[w] != want {
			t.Errorf("worker %d\n%s\n%s, by hand", w, rows[w], want)
		}
	}
	// "Each stage sustains roughly the same throughput": two units for a minibatch on all three workers.
	out, errs, code := ran(t, strings.Fields("schedule 1f1b-rr --replicas 2,1 --forward 2,1 --backward 2,1 "+
		"--minibatches 20 --json")...)
	var got struct{ Summary sim.Summary }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	if got.Summary.StepS != 2 || got.Summary.Bubble != 0 {
		t.Errorf("a minibatch takes %v with a bubble of %v; by hand 2 and none", got.Summary.StepS, got.Summary.Bubble)
	}
}

// TestReplicasByStage: three stages have 3, 1 and 2 replicas. Minibatch m is computed by worker m mod 3, by worker 3,
// and by worker 4 + m mod 2, in both directions (§3.2). The stages begin with ceil(6/3) = 2, ceil(3/1) = 3 and
// ceil(2/2) = 1 forwards, and then alternate.
func TestReplicasByStage(t *testing.T) {
	s := &shape{family: "1f1b-rr", replicas: []int{3, 1, 2}, workers: 6, chunks: 1, micros: 1, minibatches: 24,
		elastic:   elastic{alpha: -1},
		staleness: -1, times: times{forward: []float64{3, 1, 2}, backward: []float64{3, 1, 2}}}
	rows, line := rowsOf(t, s)
	seen := map[string]int{}
	for _, e := range line.Events {
		f, _ := trace.ParseFields(e.Instruction)
		if e.Kind != "F" && e.Kind != "B" {
			continue
		}
		seen[fmt.Sprint(e.Kind, f.Stage, f.Micro)]++
		if want := []int{f.Micro % 3, 3, 4 + f.Micro%2}[f.Stage]; e.Worker != want {
			t.Errorf("%s is worker %d's; by hand %d's", e.Instruction, e.Worker, want)
		}
	}
	if len(seen) != 2*3*24 {
		t.Errorf("%d passes; 24 minibatches make %d", len(seen), 2*3*24)
	}
	for w, depth := range []int{2, 2, 2, 3, 1, 1} {
		kinds := ""
		for pass := range strings.FieldsSeq(rows[w]) {
			kinds += pass[:1]
		}
		alternating := strings.Repeat("F", depth) + strings.Repeat("BF", len(kinds)/2-depth) + strings.Repeat("B", depth)
		if kinds != alternating {
			t.Errorf("worker %d computes %s; by hand %s", w, kinds, alternating)
		}
	}
}

// TestReplicasDrawnAndRead: every form of output shows the replicas, and a text is read back unchanged.
func TestReplicasDrawnAndRead(t *testing.T) {
	dir := t.TempDir()
	args := strings.Fields("schedule 1f1b --replicas 3,1,2 --replication split --micro-batches 4")
	out, errs, code := ran(t, append(args, "--svg", dir+"/x.svg", "--html", dir+"/x.html")...)
	if code != 0 || !strings.Contains(out, "1f1b: 3 stages (3-1-2) on 6 workers, 4 micro-batches") {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	for _, file := range []string{"/x.svg", "/x.html"} {
		if text, err := os.ReadFile(dir + file); err != nil || !strings.Contains(string(text), "3 stages (3-1-2) on 6") {
			t.Errorf("%s: %v", file, err)
		}
	}
	text, _, _ := ran(t, append(args, "--text")...)
	for _, line := range []string{"workers 6\n", "place p0/0: 0 1 2\n", "place p0/1: 3\n", "place p0/2: 4 5\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	write(t, dir+"/x.txt", text)
	if again, _, _ := ran(t, "schedule", dir+"/x.txt", "--text"); again != text {
		t.Errorf("read back as\n%s", again)
	}
}

// TestReplicasThatCannotBe: numbers that contradict each other, and words that are not numbers, are refused. Replicas
// are also refused if the family has another number of stages than --replicas gives. chimera and zb-auto refuse stages
// that they cannot place. dp has one stage, and may have replicas.
func TestReplicasThatCannotBe(t *testing.T) {
	most := fmt.Sprint(schedule.MaxReplica)
	for args, want := range map[string]string{
		"1f1b --replicas 2,1 --workers 4": "--workers 4; --replicas 2,1 makes 3: give that, or leave it out",
		"1f1b --replicas 2,1 --stages 3":  "--stages 3; --replicas 2,1 makes 2: give that, or leave it out",
		"1f1b --replicas 2,0":             "--replicas 2,0; give 1 to " + most,
		"1f1b --replicas 2,x":             `--replicas is "2,x"; give whole numbers, like 2,1`,
		"1f1b --forward 2,y":              `--forward is "2,y"; give numbers, like 2,1`,
		"zb-v --replicas 2,1":             "--replicas 2,1: zb-v places its stages itself; leave it out",
		"dp --replicas 2,1":               "--replicas 2,1: dp places its stages itself; leave it out",
		"interleaved --replicas 2,1":      "--replicas 2,1: interleaved places its stages itself; leave it out",
		"chimera --replicas 2,1":          "chimera: stage 1 is on workers [2]; stage s lies on workers s and 1-s",
		"zb-auto --replicas 2,1":          "zb-auto: stage 0 is on workers [0 1]; this order has one for each",
		"1f1b --forward 1,2,3":            "--forward 1,2,3 has 3 times; give one, or one for each of the 4 stages",
		"1f1b --backward 1,2,-1,1":        "--backward 1,2,-1,1; give a time from 0 to",
		"compare --backward 2,1":          "--backward 2,1; stages are equal here, give one time",
	} {
		out, errs, code := ran(t, append([]string{"schedule"}, strings.Fields(args)...)...)
		if code != cli.ExitBadInput || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, errs, want)
		}
	}
	for _, args := range []string{"--replicas 2,1 --workers 3", "--replicas 2,1 --stages 2",
		"dp --replicas 3 --workers 3"} {
		if _, errs, code := ran(t, append([]string{"schedule"}, strings.Fields(args)...)...); code != 0 {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
}

// TestEveryScheduleIsDrawnByItsDefaults: every schedule in schedule ls can be drawn without other flags, with each
// of its weight policies, and by each of its names.
func TestEveryScheduleIsDrawnByItsDefaults(t *testing.T) {
	text, _, _ := ran(t, "schedule", "ls", "--json")
	var all []struct {
		Name          string
		Also, Weights []string
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) < 20 {
		t.Fatalf("%d schedules, %v", len(all), err)
	}
	drawn := func(name string, more ...string) {
		t.Helper()
		out, errs, code := ran(t, append([]string{"schedule", name}, more...)...)
		if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), "nothing can block") {
			t.Errorf("schedule %s %v: exit %d\n%s", name, more, code, errs)
		}
	}
	for _, s := range all {
		for _, name := range append(s.Also, s.Name) {
			drawn(name)
		}
		for _, weights := range s.Weights {
			drawn(s.Name, "--weights", weights)
		}
	}
	// A minibatch of dp-async has at least one micro-batch for each replica; --workers is the number of replicas.
	for _, c := range [][2]string{
		{"dp-async", "dp-async: 1 stage on 4 workers, "},
		{"dp-async --workers 3", "dp-async: 1 stage on 3 workers, "},
		{"dp-async --micro-batches 1", "1 micro-batch for 4 replicas of stage 0; each needs one at least"},
		{"elastic --workers 4 --replicas 2 --micro-batches 1 --replication round_robin",
			"1 micro-batch for 2 replicas of stage 0; each needs one at least"},
	} {
		args := append([]string{"schedule"}, strings.Fields(c[0])...)
		if out, errs, _ := ran(t, args...); !strings.Contains(out+errs, c[1]) {
			t.Errorf("%s: want %q\n%s%s", c[0], c[1], out, errs)
		}
	}
}

// TestWhatAWorkerHoldsIsSaid: in the drawing of a single schedule, a forward takes 1 and a backward 2 on each worker.
// In compare these are the times of a quarter of the model, so a worker that holds the whole model takes 4 and 8. With
// 8 micro-batches over 4 workers, each worker of dp computes 2. A step of dp then takes 2 (1 + 2) = 6 in the drawing,
// and 2 (4 + 8) = 24 in compare.
func TestWhatAWorkerHoldsIsSaid(t *testing.T) {
	says := func(words string, args ...string) {
		t.Helper()
		out, errs, _ := ran(t, append([]string{"schedule"}, args...)...)
		if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, words) {
			t.Errorf("schedule %v: want %q\n%s%s", args, words, out, errs)
		}
	}
	const whole = "whatever it holds (schedule compare gives all schedules one model; the whole of it takes 4 and 8)."
	says(whole, "dp", "--micro-batches", "8")
	says("step 6, bubble 0.0 %", "dp", "--micro-batches", "8")
	says(whole, "single", "--micro-batches", "8")
	says("a forward takes 1 and a backward 2. ", "1f1b")
	says("a forward takes 1 and a backward 2. ", "single", "--workers", "1")
	says("forward takes 1 and its backward 2 of its share, one of 4, of the model that all schedules train; a worker "+
		"that holds the whole model, as in dp and single, takes 4 and 8. Memory", "compare", "--micro-batches", "8")
	says("dp sync 24 0.0 %", "compare", "--micro-batches", "8", "--only", "dp,zb-v")
	says("of elastic, of a batch: a step has one for each pipeline.", "compare")
}
