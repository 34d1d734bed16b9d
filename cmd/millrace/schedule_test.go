package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
)

// ran runs a command, and returns its two outputs and its exit code.
func ran(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&o)
	c.SetErr(&e)
	err := c.ExecuteContext(t.Context())
	var exit *cli.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.Code
	case err != nil:
		code = cli.ExitFailed
	}
	if err != nil {
		fmt.Fprintln(&e, err)
	}
	return o.String(), e.String(), code
}

// TestScheduleDrawsBaPipesTables compares steps and held micro-batches of BaPipe's four orders with Tables I and II of
// the paper. M is the number of micro-batches, N the number of stages. F, B and SR are the times of a forward, a
// backward and a transfer. The numbers were worked out by hand for F = 1, B = 2 and SR = 0.5, and for SR = 0. A step
// takes:
//
//	1F1B-AS, FBP-AS  (M+N-1)(F+B), transfers hidden
//	1F1B-SNO         (M+N-1)(F+B) + (N+M-2-ceil((M-1)/N)) 2 SR
//	1F1B-SO          (M+N-1)(F+B) + (N-1) 2 SR
//
// Stage i, counted from 1, holds N-i+1 micro-batches under 1F1B-AS and 1F1B-SNO, and twice as many under FBP-AS, but no
// more than M. What 1F1B-SO holds is not checked here.
func TestScheduleDrawsBaPipesTables(t *testing.T) {
	for _, c := range []struct {
		family       string
		stages, m    int
		step, bubble float64
		held         []int // nil: not checked
	}{
		{"1f1b-as", 3, 8, 30, 2. / 10, []int{3, 2, 1}},
		{"fbp-as", 3, 8, 30, 2. / 10, []int{6, 4, 2}},
		{"1f1b-as", 2, 4, 15, 1. / 5, []int{2, 1}},
		{"fbp-as", 2, 4, 15, 1. / 5, []int{4, 2}},
		{"1f1b-as", 4, 8, 33, 3. / 11, []int{4, 3, 2, 1}},
		{"fbp-as", 4, 8, 33, 3. / 11, []int{8, 6, 4, 2}},
		{"1f1b-as", 4, 3, 18, 3. / 6, []int{3, 3, 2, 1}},
		{"fbp-as", 5, 20, 72, 4. / 24, []int{10, 8, 6, 4, 2}},
		{"1f1b", 3, 8, 36, 12. / 36, []int{3, 2, 1}},
		{"1f1b", 2, 4, 17, 5. / 17, []int{2, 1}},
		{"1f1b", 4, 8, 41, 17. / 41, []int{4, 3, 2, 1}},
		{"so", 3, 8, 32, 8. / 32, nil},
		{"so", 2, 4, 16, 4. / 16, nil},
		{"so", 4, 8, 36, 12. / 36, nil},
	} {
		for _, transfer := range []string{"0", "0.5"} {
			step, bubble := c.step, c.bubble
			if transfer == "0" {
				step = 3 * float64(c.m+c.stages-1)
				bubble = float64(c.stages-1) / float64(c.m+c.stages-1)
			}
			args := []string{"schedule", c.family, "--stages", strconv.Itoa(c.stages), "--micro-batches", strconv.Itoa(c.m),
				"--transfer", transfer, "--json"}
			out, errs, code := ran(t, args...)
			var got struct {
				Check   check.Report
				Summary sim.Summary
			}
			if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
				t.Fatalf("%v: exit %d, %v\n%s", args, code, err, errs)
			}
			if math.Abs(got.Summary.StepS-step) > 1e-9 || math.Abs(got.Summary.Bubble-bubble) > 1e-9 {
				t.Errorf("%v: step %v, bubble %v; the table has %v and %v", args, got.Summary.StepS,
					got.Summary.Bubble, step, bubble)
			}
			if held := fmt.Sprint(got.Check.PeakActivations); c.held != nil && held != fmt.Sprint(c.held) {
				t.Errorf("%v: held %s; the table has %v", args, held, c.held)
			}
		}
	}
}

// TestScheduleOnStreamingDevices: a Program read from a file keeps its streaming devices, and --streaming gives them to
// any schedule.
func TestScheduleOnStreamingDevices(t *testing.T) {
	text, _, _ := ran(t, "schedule", "1f1b-as", "--stages", "3", "--micro-batches", "8", "--text")
	file := t.TempDir() + "/as.txt"
	write(t, file, text)
	for _, args := range [][]string{
		{"schedule", file, "--transfer", "0.5"},
		{"schedule", "1f1b", "--stages", "3", "--micro-batches", "8", "--transfer", "0.5", "--streaming"},
	} {
		if out, errs, code := ran(t, args...); code != 0 || !strings.Contains(out, "step       30,") ||
			!strings.Contains(out, "devices transfer while they") {
			t.Errorf("%v: exit %d, want a step of 30\n%s%s", args, code, out, errs)
		}
	}
}

// TestScheduleCountsWorkers: --workers is the number of all workers in every family. --stages, an older flag, is the
// number of workers in one replica. The case of a name does not matter. For an alias, the output says which family it
// is.
func TestScheduleCountsWorkers(t *testing.T) {
	for args, want := range map[string]string{
		"schedule ZB-V --workers 4":                   "zb-v: 8 stages on 4 workers,",
		"schedule zb-v --stages 4":                    "zb-v: 8 stages on 4 workers,",
		"schedule dp --workers 4":                     "dp: 1 stage on 4 workers,",
		"schedule 1F1B --replicas 2 --workers 6":      "1f1b: 3 stages on 6 workers,",
		"schedule --replicas 2 --stages 3":            "1f1b: 3 stages on 6 workers,",
		"schedule --replicas 2":                       "1f1b: 4 stages on 8 workers,",
		"schedule gpipe":                              "gpipe is afab here: all forwards, then all backwards",
		"schedule --replicas 2 --workers 5":           "--workers 5; give a multiple of --replicas, which is 2",
		"schedule --workers 4 --stages 4":             "give --workers alone",
		"schedule --workers 0":                        "--workers 0; give 1 to 4096",
		"schedule --stages 5000":                      "--stages 5000; give 1 to 4096",
		"schedule compare --workers 2 --only GPipe":   "afab",
		"schedule compare --stages 2 --workers 2":     "give --workers alone",
		"schedule Gpype":                              `there is no file and no schedule "Gpype"; there are 1f1b`,
		"schedule 1f1b --micro-batches 1 --workers 1": "1f1b: 1 stage on 1 worker, 1 micro-batch",
	} {
		if out, errs, _ := ran(t, strings.Fields(args)...); !strings.Contains(out+errs, want) {
			t.Errorf("%s: want %q\n%s%s", args, want, out, errs)
		}
	}
}

// TestScheduleAndCompareAgree: both verbs print the same steady step and bubble of a family, also for one that overlaps
// its steps and for several pipelines.
func TestScheduleAndCompareAgree(t *testing.T) {
	for family, want := range map[string]string{
		"zb-v":    "steady step  24, bubble 0.0 %, with others before and after it",
		"1f1b":    "step       33, bubble 27.3 %, by itself and with others before and after it",
		"elastic": "24 for the batch of each pipeline",
	} {
		out, _, _ := ran(t, "schedule", family, "--workers", "4", "--micro-batches", "8")
		if !strings.Contains(out, want) {
			t.Errorf("%s: want %q\n%s", family, want, out)
		}
	}
	out, _, _ := ran(t, "schedule", "compare", "--workers", "4", "--micro-batches", "8", "--only", "zb-v,1f1b,elastic")
	for _, want := range []string{`zb-v +sync +24 +0\.0 % +0\.0 %`, `1f1b +sync +33 +37\.5 % +27\.3 %`,
		`elastic +elastic +24 +0\.0 % +0\.0 %`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s\n%s", want, out)
		}
	}
}

// TestScheduleRefusesCosts: an impossible time is refused with its flag, the value and the range.
func TestScheduleRefusesCosts(t *testing.T) {
	flags := map[string][]string{
		"schedule":         {"forward", "backward", "weight", "transfer", "update", "all-reduce", "norm"},
		"schedule compare": {"forward", "backward", "weight", "transfer", "update", "all-reduce", "norm", "parameters"},
	}
	for verb, names := range flags {
		for _, name := range names {
			for _, value := range []string{"NaN", "inf", "-inf", "-1", "-5", "1e308"} {
				args := append(strings.Fields(verb), "--clip", "--"+name+"="+value)
				out, errs, code := ran(t, args...)
				if code != cli.ExitBadInput || out != "" || !strings.Contains(errs, "--"+name) ||
					!strings.Contains(errs, " from 0 to ") {
					t.Errorf("%v: exit %d, %q", args, code, errs)
				}
			}
		}
	}
	for _, c := range [][2]string{
		{"schedule --weight 3", "it is a part of --backward, which is 2"},
		{"schedule --warmup 99,99,99,99", "K_0 is 99; it must be 1 to M = 8"},
		{"schedule --warmup 8,8,8,9", "K_3 is 9; it must be 1 to M = 8"},
		{"schedule --warmup -1,1,1,1", "K_0 is -1; it must be 1 to M = 8"},
		{"schedule --forward 1e308 --backward 1e308", "--forward 1e+308; give a time from 0 to 1e+09"},
	} {
		if _, errs, code := ran(t, strings.Fields(c[0])...); code != cli.ExitBadInput || !strings.Contains(errs, c[1]) {
			t.Errorf("%s: exit %d, %q; want 2, %q", c[0], code, errs, c[1])
		}
	}
}

// TestChunksThatAnOrderHasNotAreRefused: in some orders a worker always has the same stages, whatever --chunks says.
// For these orders --chunks 3 is refused. It is also refused for a Program's file. An order's own number of stages on a
// worker is not refused.
func TestChunksThatAnOrderHasNotAreRefused(t *testing.T) {
	for _, f := range family.All() {
		_, errs, code := ran(t, "schedule", f.Name, "--chunks", "3", "--json")
		refused := code == cli.ExitBadInput && strings.Contains(errs, "--chunks 3: "+f.Name+" has ")
		if fixed := reflect.DeepEqual(f.Placement(4, 2), f.Placement(4, 3)); refused != fixed {
			t.Errorf("%s: exit %d, %q; a worker always has the same stages: %v", f.Name, code, errs, fixed)
		}
	}
	file := filepath.Join(t.TempDir(), "program.txt")
	text, _, _ := ran(t, "schedule", "zb-v", "--chunks", "2", "--text")
	write(t, file, text)
	for args, want := range map[string]string{
		"schedule 1f1b --chunks 3": "--chunks 3: 1f1b has 1 stage on each worker; leave it out, or take one of bfs, " +
			"dp-overlap, interleaved",
		"schedule zb-v --chunks 3":                   "--chunks 3: zb-v has 2 stages on each worker; leave it out",
		"schedule --program " + file + " --chunks 3": "--chunks 3: " + file + " says which stages a worker has; leave it out",
		"schedule 1f1b --chunks 1 --json":            "",
		"schedule zb-v --chunks 2 --json":            "",
	} {
		if _, errs, code := ran(t, strings.Fields(args)...); (code == cli.ExitBadInput) != (want != "") ||
			!strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, errs, want)
		}
	}
}

// TestAProgramSaysItsOwnShape: flags of a family's shape are refused for a Program's file, which would ignore them.
func TestAProgramSaysItsOwnShape(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program.txt")
	text, _, _ := ran(t, "schedule", "1f1b", "--workers", "3", "--micro-batches", "4", "--text")
	write(t, file, text)
	for given, says := range map[string]string{
		"--workers 8": "how many workers there are", "--stages 8": "how many workers there are",
		"--micro-batches 4": "how many micro-batches there are", "--chunks 2": "which stages a worker has",
		"--replicas 2,1": "which workers a stage has", "--replication split": "how replicas share the work",
		"--weights 2bw": "which weight policy it has", "--warmup 2,1": "in which order a worker computes",
		"--advance 1": "in which order a worker computes", "--minibatches 2": "how many steps there are",
		"--pipelines 2": "how many pipelines there are", "--alpha 0.5": "how pipelines are averaged",
		"--reference beside": "how pipelines are averaged", "--staleness 1": "how old weights may be",
	} {
		want := given + ": " + file + " says " + says + "; leave it out"
		for _, named := range [][]string{{"schedule", file}, {"schedule", "--program", file}} {
			args := append(named, strings.Fields(given)...)
			if _, errs, code := ran(t, args...); code != cli.ExitBadInput || !strings.Contains(errs, want) {
				t.Errorf("%s: exit %d, %q; want %q", args, code, errs, want)
			}
		}
	}
	if _, errs, code := ran(t, "schedule", file, "--forward", "1,2,3", "--transfer", "0.1", "--norm", "1"); code != 0 {
		t.Errorf("times: exit %d, %s", code, errs)
	}
}

// write makes a file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestOrdersThatDoNotAscend: if micro-batches are not computed in ascending order, schedule names the first instruction
// whose place changes the bits. train refuses such a Program early, unless any order is allowed.
func TestOrdersThatDoNotAscend(t *testing.T) {
	file := t.TempDir() + "/mine.txt"
	lists := func(stage string, order ...string) string {
		return strings.NewReplacer(" ", " "+stage).Replace(" " + strings.Join(order, " "))
	}
	for order, want := range map[string]string{
		"F0 F1 F2 B0 B1 B2":          "",
		"F0 F1 F2 B2 B1 B0":          "(1B1): its gradient is added behind that of 1B2",
		"F0 F1 F2 B2 B0 B1":          "(1B0): its gradient is added behind that of 1B2",
		"F0 F1 F2 I0 I1 I2 W0 W2 W1": "(1W1): its gradient is added behind that of 1W2",
		"F0 F1 F2 I0 I2 I1 W0 W1 W2": "(1I1): its gradient is added behind that of 1I2",
		"F0 F1 F2 I0 B1 W0 B2":       "(1W0): its gradient is added behind that of 1B1",
		"F0 F2 F1 B0 B1 B2": "of a model with batch norm the bits of one worker are not promised: schedule: " +
			"program mine, worker 1, line 14, instruction 2 (1F1)",
	} {
		words := strings.Fields(order)
		write(t, file, "millrace program 1\nname mine\nstages 2\nworkers 2\nmicro_batches 3\nperiod 1\nrepeat 1\nweights "+
			"sync\nreplication split\nplace p0/0: 0\nplace p0/1: 1\nbody\n0:"+
			lists("0", "F0", "F1", "F2", "B0", "B1", "B2")+"\n1:"+lists("1", words...)+"\n")
		out, errs, code := ran(t, "schedule", file)
		if code != 0 || !strings.Contains(out, "nothing can block") || (want == "") != (errs == "") ||
			!strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want it to say %q", order, code, errs, want)
		}
	}
	clitest.NeedTorch(t)
	runs := t.TempDir()
	args := func(name string) []string { // names differ, because a process registers each only once
		write(t, runs+"/"+name, "0F0,0F1,0F2,0B2,0B1,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n")
		return []string{"train", "--model", "mlp", "--data", "digits", "--batch", "6", "--steps", "1", "--program",
			runs + "/" + name, "--out", runs + "/x", "--profile", runs + "/nowhere.json"}
	}
	_, errs, code := ran(t, args("refused.csv")...)
	if code != cli.ExitBadInput || !strings.Contains(errs, "line 1, instruction 4 (0B1)") ||
		!strings.Contains(errs, "--any-order") {
		t.Errorf("train: exit %d, %q", code, errs)
	}
	if _, errs, _ = ran(t, append(args("taken.csv"), "--any-order")...); !strings.Contains(errs, prepare.NotPromised) ||
		!strings.Contains(errs, "nowhere.json") {
		t.Errorf("train --any-order: %q", errs)
	}
}
