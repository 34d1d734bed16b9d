package race

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// actAs is the environment variable that makes the test binary a fake rival; see TestMain.
const actAs = "MILLRACE_TEST_RIVAL"

func TestMain(m *testing.M) {
	if manner := os.Getenv(actAs); manner != "" {
		act(manner)
		return
	}
	os.Exit(m.Run())
}

// act speaks the protocol correctly, or with the fault that `manner` names.
func act(manner string) {
	switch manner {
	case "no model":
		fmt.Fprintln(os.Stderr, "heads do not divide the width")
		os.Exit(1)
	case "chatty":
		fmt.Println("loading...")
	case "endless line":
		fmt.Print(strings.Repeat("x", longestLine+1))
		select {}
	}
	if manner == "ranks" { // this line is read as the description, in place of the one below
		rank := exec.Command("sleep", "1000")
		if err := rank.Start(); err != nil {
			panic(err)
		}
		fmt.Printf("{\"name\": \"%d\"}\n", rank.Process.Pid)
	}
	fmt.Println(`{"name": "fake", "parameters": 12, "threads": 1, "batch": 4, "micro": 2, "context": 8}`)
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var steps int
		if _, err := fmt.Sscanf(requests.Text(), "step %d", &steps); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch manner {
		case "dies":
			fmt.Fprintln(os.Stderr, "out of memory")
			os.Exit(3)
		case "mute":
			continue
		case "garbage":
			fmt.Println("step done")
		case "empty":
			fmt.Println("{}")
		case "diverges":
			fmt.Println(`{"samples": 4, "seconds": 0.001, "loss": NaN}`)
		case "late":
			fmt.Println(`{"samples": 4, "seconds": 1000}`)
		default:
			fmt.Printf("{\"samples\": %d, \"seconds\": 1e-6, \"loss\": 2.5}\n", 4*steps)
		}
	}
	if manner == "ends badly" {
		fmt.Fprintln(os.Stderr, "the other rank is gone")
		os.Exit(4)
	}
}

func start(t *testing.T, ctx context.Context, manner string) (*Rival, error) {
	t.Helper()
	c := fakes(t, manner)[0]
	c.Name = "fake"
	return Start(ctx, c)
}

// The child processes of a rival end when the rival ends. Here the rival is stopped, or it ends well while a child
// process still runs.
func TestRanksEndWithTheirRival(t *testing.T) {
	for name, end := range map[string]func(stop func(), r *Rival) error{
		"stopped": func(stop func(), r *Rival) error { stop(); return r.Close() },
		"closed":  func(_ func(), r *Rival) error { return r.Close() },
	} {
		ctx, stop := context.WithCancel(t.Context())
		r, err := start(t, ctx, "ranks")
		if err != nil {
			t.Fatal(err)
		}
		if err := end(stop, r); (err != nil) != (name == "stopped") {
			t.Errorf("%s: it ended with %v", name, err)
		}
		stop()
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + r.Description.Name + "/stat")
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Since(began) > 2*time.Second {
				t.Fatalf("%s: its rank, process %s, is still there", name, r.Description.Name)
			}
		}
	}
}

func TestRivalTrains(t *testing.T) {
	r, err := start(t, t.Context(), "well")
	if err != nil {
		t.Fatal(err)
	}
	if r.Name() != "fake" || r.Description.Parameters != 12 || r.Description.Context != 8 {
		t.Errorf("%s is %+v", r.Name(), r.Description)
	}
	for range 3 {
		w, err := r.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if w.Samples != 12 || w.Time != time.Microsecond || r.Loss != 2.5 {
			t.Errorf("%+v with loss %v; want 3 steps of 4 rows", w, r.Loss)
		}
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Step(t.Context()); err == nil {
		t.Error("it trains after Close")
	}
}

func TestRivalThatIsNeverReady(t *testing.T) {
	for manner, want := range map[string]string{
		"no model":     "heads do not divide the width",
		"chatty":       `it answers "loading..."`,
		"endless line": "too long",
	} {
		if _, err := start(t, t.Context(), manner); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "race: fake: ") {
			t.Errorf("%s: %v, want %q", manner, err, want)
		}
	}
	if _, err := Start(t.Context(), Command{Name: "gone", Path: "no-such-program", Steps: 1}); err == nil ||
		!strings.Contains(err.Error(), "race: gone: it does not start") {
		t.Errorf("no program: %v", err)
	}
	if _, err := Start(t.Context(), Command{Name: "still", Path: "true"}); err == nil || !strings.Contains(err.Error(),
		"0 steps a visit") {
		t.Errorf("no steps: %v", err)
	}
}

func TestRivalThatFailsInAStep(t *testing.T) {
	for manner, want := range map[string]string{
		"dies":     "exit status 3: out of memory",
		"garbage":  `it answers "step done"`,
		"empty":    "lacks samples or seconds",
		"diverges": "NaN",
		"late":     "the answer is to another request",
	} {
		r, err := start(t, t.Context(), manner)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Step(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", manner, err, want)
		}
		if _, err := r.Step(t.Context()); err == nil {
			t.Errorf("%s: it trains after an error", manner)
		}
	}
}

func TestRivalThatEndsBadly(t *testing.T) {
	r, err := start(t, t.Context(), "ends badly")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "exit status 4: the other rank is gone") {
		t.Error(err)
	}
}

// A rival that never answers ends when the context of the step or the rival's own context ends.
func TestMuteRivalEndsWithItsContext(t *testing.T) {
	for _, whose := range []string{"step", "start"} {
		life, stop := context.WithCancelCause(t.Context())
		r, err := start(t, life, "mute")
		if err != nil {
			t.Fatal(err)
		}
		step, interrupt := context.WithCancelCause(t.Context())
		if whose == "step" {
			interrupt(errors.New("interrupted"))
		} else {
			stop(errors.New("interrupted"))
		}
		_, err = r.Step(step)
		if err == nil || (whose == "step" && !strings.Contains(err.Error(), "interrupted")) {
			t.Errorf("the context of %s ended: %v", whose, err)
		}
		stop(nil)
		interrupt(nil)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"samples": 96, "seconds": 2.92, "loss": 5.6}`))
	f.Add([]byte(`{"samples": 1, "seconds": 1e300}`))
	f.Add([]byte(`{"samples": -1, "seconds": 1e-300}`))
	f.Add([]byte(`{"seconds": NaN}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parseAnswer(line)
		if err == nil && (a.work.check() != nil || math.IsInf(a.work.Rate(), 0) || a.work.Rate() <= 0) {
			t.Errorf("%q became %+v", line, a)
		}
	})
}

func fakes(t *testing.T, manners ...string) (out []Command) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manners {
		out = append(out, Command{Name: m, Path: self, Env: append(os.Environ(), actAs+"="+m), Steps: 3})
	}
	return out
}

// Every rival is visited once per round, and the first round, a warm-up, is not counted.
func TestRounds(t *testing.T) {
	visits, before, ended := make([]int, 3), []int{}, []int{}
	err := Together(t.Context(), fakes(t, "well", "well", "well"), func(rivals []*Rival) error {
		return Rounds(t.Context(), rivals, 4, func(round int) error { before = append(before, round); return nil },
			func(at int, _ Work) { visits[at]++ }, func(round int) {
				ended = append(ended, round)
				for at, n := range visits {
					if n != round {
						t.Errorf("after round %d rival %d has had %d visits", round, at, n)
					}
				}
			})
	})
	if err != nil || len(ended) != 5 || !slices.Equal(before, []int{1, 2, 3, 4}) {
		t.Errorf("rounds %v, before which %v: %v", ended, before, err)
	}
}

// The first error is returned, and no process is left running.
func TestTogetherTellsWhatWentWrong(t *testing.T) {
	var open []*Rival
	keep := func(rivals []*Rival) error {
		open = rivals
		return nil
	}
	if err := Together(t.Context(), fakes(t, "well", "ends badly"), keep); err == nil || !strings.Contains(err.Error(),
		"ends badly: it ended with exit status 4") {
		t.Errorf("a rival that ends badly: %v", err)
	}
	if err := Together(t.Context(), fakes(t, "well", "no model"), keep); err == nil || !strings.Contains(err.Error(),
		"heads do not divide") {
		t.Errorf("a rival that does not start: %v", err)
	}
	err := Together(t.Context(), fakes(t, "dies", "ends badly"), func(rivals []*Rival) error {
		open = rivals
		return Rounds(t.Context(), rivals[:1], 1, nil, nil, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a rival that dies: %v", err)
	}
	for _, r := range open {
		select {
		case <-r.gone:
		default:
			t.Errorf("%s is still there", r.Name())
		}
	}
}
