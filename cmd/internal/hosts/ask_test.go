package hosts

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// at returns a profile of a host whose processor is `times` times as fast as that of rank 0.
func at(t *testing.T, m *model.Model, device string, times float64) *profile.Profile {
	t.Helper()
	p, err := profile.Analytic(m, map[string]cluster.DeviceType{device: {PeakFLOPS: times * 1e9,
		MemoryBandwidthBytesPerSecond: times * 1e9}}, []int{2}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Processes that share no processor measure at once. The costs of a type are those that its first process measured.
func TestProcessesThatShareNoProcessorMeasureAtOnce(t *testing.T) {
	j := job.Default()
	j.Model.Name = "mlp"
	m, err := prepare.LoadModel(&j)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		processes string
		want      []int // the processes that measure, all at once
		first     []int // the process whose costs are used, for each type
	}{
		{"a:0 a:1", []int{0, 1}, []int{0}},
		{"a:01 a:01", []int{0}, []int{0}},
		{"a:0 a:1 b:0", []int{0, 1, 2}, []int{0, 2}},
		{"b:0 a:0 a:1", []int{0, 1, 2}, []int{0, 1}},
		{"a:0 a:123", []int{0, 1}, []int{0, 1}},                 // both types are measured at once
		{"a:0 b:0 b:123 a:123", []int{0, 1, 2, 3}, []int{0, 2}}, // all four measure at once, two for each type
	} {
		s := world(1, k.processes)
		var mu sync.Mutex
		var asked []int
		now := make(chan struct{}) // closed once all expected processes were asked
		c := &Crew{ctx: t.Context(), ask: func(ctx context.Context, rank int, _ string, with, answer any) error {
			mu.Lock()
			if asked = append(asked, rank); len(asked) == len(k.want) {
				close(now)
			}
			mu.Unlock()
			select {
			case <-now:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: rank %d measures, and others are not asked meanwhile", k.processes, rank)
			}
			if q := with.(profileQuestion); q.Kind != s.kind(rank) {
				t.Errorf("%s: rank %d is asked for %s", k.processes, rank, q.Kind)
			}
			*answer.(*profile.Profile) = *at(t, m, "cpu", float64(1+rank))
			return nil
		}}
		types := s.Types(1)
		got, err := c.Profile(s, types, s.Called(types, nil), &j, []int{2})
		if err != nil {
			t.Errorf("%s: %v", k.processes, err)
			continue
		}
		slices.Sort(asked)
		if !slices.Equal(asked, k.want) || len(types) != len(k.first) {
			t.Errorf("%s: %v are asked, of %d types; want %v, of %d", k.processes, asked, len(types), k.want, len(k.first))
			continue
		}
		for i, rank := range k.first {
			want := at(t, m, types[i].Name, float64(1+rank)).Layers[0].Costs[0].ForwardS
			costs := got.Layers[0].Costs
			if n := slices.IndexFunc(costs, func(c profile.Cost) bool { return c.Device == types[i].Name }); n < 0 ||
				costs[n].ForwardS != want {
				t.Errorf("%s: type %s has the costs %+v; want those of rank %d", k.processes, types[i].Name, costs, rank)
			}
		}
	}
}
