package shape

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// TestWhatWaitsForWeightsTakesRoom: a forward occupies room for 1 micro-batch. After its input gradient, a quarter of
// this room is still needed for the weight gradient. Three forwards occupy 3. Two more forwards, each after an input
// gradient, make it 3.25 and then 3.5. Three pairs of a forward and its input gradient occupy 1, 1.25 and 1.5 before
// any weight gradient.
func TestWhatWaitsForWeightsTakesRoom(t *testing.T) {
	stages := []stage{{unit: unit{pending: 0.25}}}
	list := func(kinds string) (out schedule.List) {
		for _, k := range kinds {
			kind := map[rune]schedule.Kind{'F': schedule.F, 'I': schedule.I, 'W': schedule.W, 'B': schedule.B}[k]
			out = append(out, schedule.Instruction{Kind: kind})
		}
		return out
	}
	for kinds, want := range map[string]float64{"FFFIIIWWW": 3, "FFFIFIFIIIWWWWW": 3.5, "FIFIFIWWW": 1.5, "FBFBFB": 1} {
		if got := fullest(list(kinds), stages, []float64{1}); got != want {
			t.Errorf("%s holds %v, want %v", kinds, got, want)
		}
		p := &schedule.Program{Name: kinds, Body: schedule.Part{list(kinds)}}
		for room := range 5 {
			if err := fits(p, stages, room); (err == nil) != (want <= float64(room)) {
				t.Errorf("%s with room for %d: %v", kinds, room, err)
			}
		}
	}
}

// TestASweepNamesChunksThatItsScheduleHasNot: a schedule with no pipeline of the given chunks is refused, not left out.
func TestASweepNamesChunksThatItsScheduleHasNot(t *testing.T) {
	for _, one := range []struct {
		schedule string
		chunks   []int
		stages   []int
		says     string
	}{
		{"interleaved", []int{1}, nil, "chunks is 1, give 2 at least"},
		{"interleaved", []int{1, 2}, nil, ""}, // 1 chunk is for shapes of one stage
		{"interleaved", nil, nil, ""},
		{"interleaved", []int{1}, []int{1}, ""},
		{"zb-v", []int{1, 3}, nil, "give 2"},
		{"zb-v", nil, nil, ""},
		{"1f1b", []int{2}, nil, "give 1"},
		{"1f1b", nil, nil, ""},
		{"chimera", nil, []int{2, 4}, "several workers"},
		{"", []int{1}, nil, ""},
	} {
		err := Sweep{Base: Shape{Schedule: one.schedule}, Chunks: one.chunks, Stages: one.stages}.Ordered()
		if (err == nil) != (one.says == "") || err != nil && !strings.Contains(err.Error(), one.says) {
			t.Errorf("%s of chunks %v and stages %v: %v, want %q", one.schedule, one.chunks, one.stages, err, one.says)
		}
	}
}

// TestTheLastMessageGoesToTheWorkerInFront: whatever the placement, the last message of a worker's last backward goes
// to the worker in front of it, or to itself. That is the message that contention counts beside the sum.
func TestTheLastMessageGoesToTheWorkerInFront(t *testing.T) {
	checked := 0
	for _, f := range family.All() {
		s := Sweep{Base: Shape{Schedule: f.Name}}
		if s.Ordered() != nil {
			continue
		}
		on := f.Placement(4, 2)
		p, err := family.Generate(f.Name, schedule.Settings{Placement: on, MicroBatches: 8})
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		for w := range p.Workers {
			last := 0
			p.Walk(w, func(in schedule.Instruction) bool {
				if in.Kind == schedule.B || in.Kind == schedule.I {
					last = int(in.Stage)
				}
				return true
			})
			if to := on[max(0, last-1)][0]; w > 0 && to != w-1 || w == 0 && last != 0 {
				t.Errorf("%s: worker %d's last backward is of stage %d, whose gradients go to worker %d", f.Name, w, last, to)
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("only %d workers were looked at", checked)
	}
}
