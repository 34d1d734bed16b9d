package p2p

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

// actAs is the environment variable that makes the test binary a player; see TestMain.
const actAs = "MILLRACE_TEST_PLAYER"

func TestMain(m *testing.M) {
	way := os.Getenv(actAs)
	if way == "" {
		os.Exit(m.Run())
	}
	play := func() error { return Follow(way, os.Stdin, os.Stdout) }
	if len(os.Args) == 1 {
		play = func() error {
			return Play(context.Background(), way, []string{os.Args[0], "second"}, os.Stdin, os.Stdout)
		}
	}
	err := play()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func own(name, way string, sums bool) Player {
	return Player{name, way, race.Command{Name: name, Path: os.Args[0], Env: append(os.Environ(), actAs+"="+way),
		Steps: 1}, sums}
}

// Raw TCP and millrace can be measured, and millrace a second time under another name. The results are the same after
// they are written and read, and they are printed.
func TestPlayersAreMeasured(t *testing.T) {
	players := []Player{own(RawTCP, "raw", false), own(Millrace, "millrace", true), own("again", "millrace", true)}
	s := Settings{Sizes: []int{4096, 300_000}, Sums: []int{40_000}, Arrives: 1 << 20, Computes: 5 * time.Millisecond,
		Rounds: 6, Visit: time.Millisecond}
	r, err := Measure(t.Context(), players, s, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Messages) != 6 || len(r.Arrivals) != 3 || len(r.Sums) != 2 {
		t.Fatalf("%d times of messages, %d arrivals, %d sums", len(r.Messages), len(r.Arrivals), len(r.Sums))
	}
	for _, m := range append(r.Messages, r.Sums...) {
		if !(m.MedianS > 0 && m.LowerS <= m.MedianS && m.MedianS <= m.UpperS && m.UpperS < 1) {
			t.Errorf("%s, %d bytes: %g s, %g to %g", m.Way, m.Bytes, m.MedianS, m.LowerS, m.UpperS)
		}
	}
	for _, a := range r.Arrivals {
		if len(a.Ratios) != s.Rounds || !(a.IdleMedianS > 0 && a.Interval.Lo <= a.MedianRatio) {
			t.Errorf("%+v", a)
		}
	}
	path := filepath.Join(t.TempDir(), "p2p.json")
	if err := record.Write(path, r); err != nil {
		t.Fatal(err)
	}
	again, err := record.Read[Results](path)
	if err != nil || !reflect.DeepEqual(r.Messages, again.Messages) || !reflect.DeepEqual(r.Arrivals, again.Arrivals) ||
		!reflect.DeepEqual(r.Sums, again.Sums) {
		t.Errorf("%v: other results are read", err)
	}
	var text bytes.Buffer
	if err := again.Markdown(&text); err != nil || strings.Count(text.String(), "| again |") != 4 {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

func TestRequestsAreChecked(t *testing.T) {
	for _, line := range []string{"", "turns", "turns 4096 1", "fly 4096 1 0", "turns 1 1 0", "turns 4096 0 0",
		"arrive 4096 1 1e9", "turns 99999999999 1 0"} {
		if r, err := parse(line); err == nil {
			t.Errorf("%q is taken for %+v", line, r)
		}
	}
	want := request{What: "arrive", Bytes: 1 << 20, Count: 1, ComputeS: 0.5}
	if got, err := parse(want.line()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := (Settings{Rounds: 2}).Check(); err == nil {
		t.Error("two rounds are enough")
	}
	if err := Play(t.Context(), "pigeon", []string{"true"}, nil, nil); err == nil {
		t.Error("a way that nobody knows is played")
	}
}
