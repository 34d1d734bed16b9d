package exchange_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// oddText returns the text of a Program of two stages, with settings and lists that no family writes.
func oddText(settings string, lists ...string) string {
	text := schedule.TextHeader + "\nname odd\n" + settings
	for _, s := range []string{"stages 2", "workers 2", "micro_batches 2", "period 1", "repeat 1", "weights sync",
		"replication split", "lowered false"} {
		if key, _, _ := strings.Cut(s, " "); !strings.Contains("\n"+settings, "\n"+key+" ") {
			text += s + "\n"
		}
	}
	text += "place p0/0: 0\nplace p0/1: 1\n"
	if !slices.Contains(lists[:min(3, len(lists))], "body") {
		text += "body\n"
	}
	return text + strings.Join(lists, "\n") + "\n"
}

const (
	plain0   = "0: 0F0 0F1 0B0 0B1"
	plain1   = "1: 1F0 1B0 1F1 1B1"
	lowered0 = "0: 0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1 0U0"
	lowered1 = "1: 1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1 1U0"
)

// oddPrograms returns handwritten texts with the expected error of Check or of the reader. The error is empty if the
// Program can run.
func oddPrograms() map[string][2]string {
	training := "a program that trains does not evaluate"
	return map[string][2]string{
		"as it should be":              {oddText("", plain0, plain1), ""},
		"lowered, as it should be":     {oddText("lowered true\n", lowered0, lowered1), ""},
		"drains between micro-batches": {oddText("", "0: 0F0 0B0 0DR0 0F1 0B1", "1: 1F0 1B0 1DR0 1F1 1B1"), ""},

		"a tie past the last stage": {strings.Replace(oddText("lowered true\n", "0: 0F0 0SF0 0RB0 0B0 0TG0 0U0",
			"1: 1RF0 1F0 1B0 1SB0 1TG0 1U0"), "stages 2", "stages 9\ntied 0 8\nstages 2", 1),
			"line 6: stages stands in line 4 already; give it once"},
		"a tie of one":      {oddText("", "tied 0", "body", plain0, plain1), "a tie is of two stages at least"},
		"a tie with itself": {oddText("", "tied 1 1", "body", plain0, plain1), "stage 1 is tied twice"},
		"ties that overlap": {oddText("", "tied 0 1", "tied 1 0", "body", plain0, plain1), "stage 1 is tied twice"},
		"two sizes": {oddText("workers 2\nworkers 3\n", plain0, plain1),
			"line 4: workers stands in line 3 already"},
		"two names": {oddText("name other\n", plain0, plain1), "line 3: name stands in line 2 already"},
		"two policies": {oddText("weights sync\nweights stash\n", plain0, plain1),
			"line 4: weights stands in line 3 already"},
		"two bodies": {oddText("", "body", plain0, plain1, "body", plain0),
			"line 16: body stands in line 13 already"},
		"a list twice": {oddText("", plain0, plain0), "worker 0 has its list already"},
		"saved in the body": {oddText("", plain0+" 0CK0", plain1+" 1CK0"),
			"it saves what 0U0 has left, which must come before it, and no later one"},
		"saved behind its update": {oddText("lowered true\n", lowered0+" 0CK0", lowered1+" 1CK0"), ""},
		"saved by one stage": {oddText("lowered true\n", lowered0+" 0CK0", lowered1),
			"1CK0 is missing: stage 0 saves itself there, and the checkpoint is of all stages"},
		"evaluated in the body": {oddText("", plain0+" 0EV2", plain1+" 1EV2"), "instruction 4 (0EV2): " + training},
		"evaluated in between": {oddText("", "0: 0F0 0EV9 0F1 0B0 0B1", "1: 1F0 1B0 1EV9 1F1 1B1"),
			"instruction 1 (0EV9): " + training},
		"saved at the end": {oddText("", plain0, plain1, "epilogue", "1: 1CK0"),
			"it saves what 1U1 has left, which must come before it, and no later one"},
		"no lists":               {oddText(""), "it has no instructions"},
		"empty lists":            {oddText("", "0:", "1:"), "it has no instructions"},
		"repeated never":         {oddText("repeat 0\n", plain0, plain1), "it has no instructions"},
		"repeated for ever":      {oddText("repeat 134217727\n", plain0, plain1), ""},
		"too many micro-batches": {oddText("repeat 134217728\n", plain0, plain1), "micro-batches repeated"},
		"one number over": {oddText("repeat 268435456\n", plain0, plain1),
			"line 3: repeat: 268435456 is over 268435455"},
		"minibatches cut short": {oddText("period 2\nmicro_batches 3\n", plain0, plain1),
			"its period is 2 minibatches"},
		"more minibatches":     {oddText("period 3\n", plain0, plain1), "its period is 3 minibatches"},
		"minibatches past all": {oddText("period 268435455\n", plain0, plain1), "its period is"},
		"a micro-batch below 0": {oddText("", "0: 0F-1 0F1 0B-1 0B1", "1: 1F-1 1B-1 1F1 1B1"),
			"it is of micro-batch -1 to -1; they are 0 to 268435455"},
		"a micro-batch past all": {oddText("repeat 3\n", "0: 0F0 0F268435455 0B0 0B268435455", plain1),
			"it is of micro-batch 268435455 to 268435459"},
		"only a far micro-batch": {oddText("", "0: 0F268435453 0B268435453", "1: 1F268435453 1B268435453"),
			"it would use weights from before 0U134217725"},
		"a far stream": {oddText("weights stash\nmicro_batches 268435455\n", "0: 0F268435453 0B268435453",
			"1: 1F268435453 1B268435453"), "the gradient of 0B0 is not there yet"},
		"16,385 workers":        {oddText("workers 16385\n", plain0, plain1), "line 3: workers: 16385 is over 16384"},
		"an update nobody made": {oddText("", "0: 0U0", "1: 1U0"), "no gradient is of it: there are 0 micro-batches"},
		"half of a backward":    {oddText("", "0: 0F0 0F1 0I0 0I1", plain1), "0B0 is missing"},
		"weights before inputs": {oddText("", "0: 0F0 0F1 0W0 0I0 0B1", plain1),
			"its input gradient 0I0 must come before it"},
		"both halves and whole": {oddText("", "0: 0F0 0F1 0B0 0I0 0W0 0B1", plain1),
			"0RB0, which its order implies: it stands in the list twice"},
		"drains by one": {oddText("", "0: 0DR0 0F0 0F1 0B0 0B1", plain1), "it would block for ever"},
		"a norm that nothing needs": {oddText("lowered true\n", lowered0, strings.Replace(lowered1, "1U0", "1GN0 1U0",
			1)), "instruction 8 (1GN0): updates of this program need no gradient norm"},
		"a receive of nothing": {oddText("lowered true\n", "0: 0RF0"+lowered0[2:], lowered1),
			"instruction 0 (0RF0): no other worker has a part in it"},
		"a send to nobody": {oddText("lowered true\n", lowered0, strings.Replace(lowered1, "1F0", "1F0 1SF0", 1)),
			"instruction 2 (1SF0): no other worker has a part in it"},
		"a sum of one replica": {oddText("lowered true\n", strings.Replace(lowered0, "0U0", "0AR0 0U0", 1), lowered1),
			"instruction 8 (0AR0): stage 0 has one replica, and nothing to sum"},
		"a sum of what is not tied": {oddText("lowered true\n", strings.Replace(lowered0, "0U0", "0TG0 0U0", 1),
			lowered1), "instruction 8 (0TG0): stage 0 shares no parameter, and has nothing to sum"},
		"an update of nothing": {oddText("weights stash\nlowered true\n", lowered0+" 0U1", lowered1+" 1U1"),
			"instruction 9 (0U1): no gradient is of it: there are 2 micro-batches"},
		"workers too late": {strings.Replace(oddText("", plain0, plain1), "workers 2\n", "", 1),
			"line 10: place stands in front of the line \"workers N\""},
		"a message too many": {oddText("lowered true\n", strings.Replace(lowered0, "0U0", "0SF0 0U0", 1), lowered1),
			"it stands in the list twice"},
		"a message nobody takes": {oddText("lowered true\n", lowered0, strings.Replace(lowered1, "1RF1 ", "", 1)),
			"its input is not here: 1RF1 must come before it"},
		"a pipeline too many": {oddText("", "0: p1/0F0", plain1), "there are 1 pipelines"},
		"a replica too many":  {oddText("", "0: 0F0@r1", plain1), "stage 0 has 1 replicas"},
		"a validation": {oddText("lowered true\n", lowered0+" 0PV0", lowered1),
			"updates of this program wait for their norm"},
		"put off": {oddText("weights 2bw\ndefer_updates true\n", plain0, plain1),
			"its updates are put off"},
		"recomputing nothing": {oddText("", "recompute", "body", plain0, plain1), "recompute: it names nothing"},
		"recomputing by 0":    {oddText("", "recompute 0:0", "body", plain0, plain1), "it must be 1 at least"},
		"elastic by name alone": {oddText("weights elastic\n", plain0, plain1),
			"weight policy \"elastic\" without its settings"},
		"elastic without NaN": {oddText("weights elastic\nelastic 1 NaN dilute_first\n", plain0,
			plain1), "line 4: elastic"},
	}
}

// TestOddPrograms: a handwritten Program that cannot run is refused with the reason and, where possible, the line.
// No text causes a panic, and all methods can be called on Programs that pass.
func TestOddPrograms(t *testing.T) {
	for name, c := range oddPrograms() {
		s, err := exchange.ReadSource("odd.txt", []byte(c[0]))
		if err == nil {
			_, err = s.Check(0)
		}
		switch {
		case c[1] == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c[1] != "" && (err == nil || !strings.Contains(err.Error(), c[1]) ||
			!strings.Contains(err.Error(), "odd.txt")):
			t.Errorf("%s: got %v\nwant it to say %q, and the file", name, err, c[1])
		}
		if s != nil {
			handled(s.Program)
		}
	}
}

// handled calls the functions that the commands call, if the Program is small and passes Validate. Check may have
// refused it.
func handled(p *schedule.Program) {
	if check.Validate(p) != nil || p.Instructions() > 1<<12 || p.Workers > 1<<8 {
		return
	}
	_, err := check.Check(p)
	if q, lowering := lower.Lower(p, lower.Options{Tied: p.Tied, Clip: p.Clip,
		PostValidate: p.PostValidate}); lowering == nil {
		p = q
	}
	for w := range p.Workers {
		p.Walk(w, func(in schedule.Instruction) bool { return in.String() != "" })
		p.StagesOf(w)
		if p.Lowered && err == nil {
			p.Uses(w)
			p.Copies(w)
		}
	}
	if err == nil {
		p.Holdings()
		p.Minibatches()
		if d, err := scheduletest.Draw(p, scheduletest.UnitSlots); err == nil {
			_ = d.String()
		}
		_, _ = family.Of(p)
	}
	if m, err := machine.New(p, machine.Options{Cores: machine.Share(1)}); err == nil {
		m.Waits()
	}
}

// TestTieOutOfRange: a lowered Program whose tie names a missing stage is refused without a panic. Such a Program comes
// from JSON or from a caller, because the reader of texts refuses it.
func TestTieOutOfRange(t *testing.T) {
	for _, tied := range [][]int{{0, 8}, {-1, 0}, {2, 1}} {
		p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{Tied: [][]int{{0, 1}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Tied = [][]int{tied}
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), "is tied; stages are 0 to 1") {
			t.Errorf("ties %v: %v", tied, err)
		}
	}
}

// TestSizesAreRefusedBeforeMemory: sizes that would take all memory are refused before much memory is allocated.
func TestSizesAreRefusedBeforeMemory(t *testing.T) {
	body := oddText("repeat 134217727\n", plain0, plain1)
	for name, try := range map[string]func() error{
		"micro-batches": func() error {
			_, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(4, 1),
				MicroBatches: 20_000_000})
			return err
		},
		"micro-batches of elastic": func() error {
			_, err := family.Generate("elastic", schedule.Settings{Placement: schedule.Replicated(2, 1),
				MicroBatches: 3_000_000})
			return err
		},
		"minibatches of a stream with replicas": func() error {
			_, err := family.Generate("1f1b-rr", schedule.Settings{Placement: [][]int{{0, 1}, {2}},
				MicroBatches: 200_000_000, Repeat: 1})
			return err
		},
		"repetitions": func() error {
			p, err := schedule.ParseText(strings.NewReader(body))
			if err != nil {
				return fmt.Errorf("not read: %v", err)
			}
			return check.Playable(p)
		},
		"an endless file": func() error {
			_, err := exchange.Read(endless{})
			return err
		},
		"workers": func() error {
			_, err := schedule.ReadJSON(strings.NewReader(`{"version":1,"name":"x","stages":1,"workers":1000000000,
				"placement":[[[0]]],"micro_batches":1,"period":1,"repeat":1}`))
			if err == nil {
				p := &schedule.Program{Workers: 1e9, Stages: 1, Placement: [][][]int{{{0}}}, MicroBatches: 1,
					Period: 1, Repeat: 1}
				_, err = check.Check(p)
			}
			return err
		},
		"stages of a JSON file": func() error {
			_, err := schedule.ReadJSON(strings.NewReader(`{"version":1,"name":"x","stages":1000000000000000000,
				"workers":1,"micro_batches":1,"period":1,"repeat":1}`))
			return err
		},
		"turns that come out even late": func() error {
			_, err := family.Generate("1f1b-rr", schedule.Settings{Placement: turns(1021, 1019, 200), MicroBatches: 1,
				Repeat: schedule.MaxMicro})
			return err
		},
		"turns that come out even nowhere": func() error {
			_, err := family.Generate("1f1b-rr", schedule.Settings{
				Placement: turns(1021, 1019, 1013, 1009, 997, 991, 983, 977), MicroBatches: 1, Repeat: 9})
			return err
		},
		"a prologue far away": func() error {
			_, err := check.Check(&schedule.Program{Name: "x", Workers: 1, Stages: 1, Placement: [][][]int{{{0}}},
				MicroBatches: 1, Period: 1,
				Repeat: 1 << 27, Weights: schedule.Stash, Replication: schedule.Split, Lowered: true,
				Prologue: schedule.Part{{{Kind: schedule.F, Micro: 1 << 26}}},
				Body:     schedule.Part{{{Kind: schedule.F}, {Kind: schedule.B}}}})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := try()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 1<<20 {
			t.Errorf("%s: %d bytes were taken; %v", name, took, err)
		} else if !strings.ContainsAny(err.Error(), "0123456789") {
			t.Errorf("%s: %v says no number", name, err)
		}
	}
}

// turns returns a placement of stages with the given numbers of replicas.
func turns(replicas ...int) [][]int {
	var on [][]int
	worker := 0
	for _, n := range replicas {
		stage := make([]int, n)
		for r := range stage {
			stage[r] = worker
			worker++
		}
		on = append(on, stage)
	}
	return on
}

// TestFilesTakeWhatTheyAre: reading and checking a file takes memory in proportion to its size, whatever it
// contains.
func TestFilesTakeWhatTheyAre(t *testing.T) {
	const n = 4000
	many := schedule.TextHeader + fmt.Sprintf("\nname many\nstages %d\nworkers 1\nmicro_batches 1\nperiod 1\nrepeat 1\n"+
		"weights sync\nreplication split\nclip true\n", n)
	var places, forwards, backwards strings.Builder
	for s := range n {
		fmt.Fprintf(&places, "place p0/%d: 0\n", s)
		fmt.Fprintf(&forwards, " %dF0", s)
		fmt.Fprintf(&backwards, " %dB0", n-1-s)
	}
	many += places.String() + "body\n0:" + forwards.String() + backwards.String() + "\n"
	for name, c := range map[string]struct {
		text string
		most uint64 // allocated bytes for each byte of the file
	}{
		"slots of waiting":             {"0F0" + strings.Repeat(",", 1<<20) + "0B0\n", 16},
		"lists of nothing":             {`{"version":1,"body":[` + strings.Repeat("[],", 5<<20) + "[]]}", 16},
		"stages on one worker, a norm": {many, 400},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := exchange.ReadSource("long", []byte(c.text))
		if err == nil {
			_, err = s.Check(0)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > c.most*uint64(len(c.text)) {
			t.Errorf("%s: %d bytes were taken for %d; %v", name, took, len(c.text), err)
		}
	}
}

// TestRepeatedForEver: the time to check a Program does not grow with its repetitions.
func TestRepeatedForEver(t *testing.T) {
	s, err := exchange.ReadSource("x.txt", []byte(oddText("repeat 134217727\n", plain0, plain1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(2); err != nil {
		t.Error(err)
	}
	if _, err := s.Check(1); err == nil || !strings.Contains(err.Error(), "instruction 1 (0F1): it would hold 2") {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// FuzzOddPrograms: every text that parses can be checked, lowered, walked and drawn without a panic. The seeds are
// valid and nearly valid Programs.
func FuzzOddPrograms(f *testing.F) {
	for _, c := range oddPrograms() {
		f.Add(c[0])
	}
	for _, order := range []string{"1f1b-rr", "elastic", "dp-async", "chimera", "zb-v", "zb-h2"} {
		known, _ := family.Lookup(order)
		p, err := family.Generate(order, schedule.Settings{Placement: known.Placement(2, 2), MicroBatches: 2,
			Repeat: 4})
		if err == nil {
			f.Add(p.Text())
			p, err = lower.Lower(p, lower.Options{Clip: true, PostValidate: true})
		}
		if err == nil {
			f.Add(p.Text())
		}
	}
	f.Fuzz(func(_ *testing.T, text string) {
		if s, err := exchange.ReadSource("odd.txt", []byte(text)); err == nil {
			if s.Program.Instructions() < 1<<12 && s.Program.Workers < 1<<8 {
				_, _ = s.Check(2)
				check.OutOfOrder(s.Program, true)
			}
			handled(s.Program)
		}
	})
}
