package pace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// steps returns the durations of n steps: for each worker its value in profileS, multiplied by the result of pace.
func steps(n int, profileS []float64, pace func(step, worker int) float64) [][]float64 {
	all := make([][]float64, n)
	for i := range all {
		for k, s := range profileS {
			all[i] = append(all[i], s*pace(i, k))
		}
	}
	return all
}

// told returns all changes of a run, except those that say that a worker is still a straggler.
func told(w *Watch, all [][]float64) []Change {
	var out []Change
	for i, busy := range all {
		for _, c := range w.Step(i, busy) {
			if !c.Still {
				out = append(out, c)
			}
		}
	}
	return out
}

func TestWhoIsAStraggler(t *testing.T) {
	four := []float64{0.10, 0.20, 0.15, 0.10}
	one := func(slow int, by float64) func(int, int) float64 {
		return func(_, k int) float64 {
			if k == slow {
				return by
			}
			return 1
		}
	}
	type who struct{ worker, from, to int }
	for name, c := range map[string]struct {
		profileS []float64
		group, n int
		pace     func(step, worker int) float64
		want     []who
	}{
		"as profiled":               {four, 1, 100, one(-1, 1), nil},
		"a little slower":           {four, 1, 100, one(2, 1.25), nil},
		"one":                       {four, 1, 100, one(2, 1.26), []who{{2, 0, 19}}},
		"one, and too short a run":  {four, 1, 19, one(2, 9), nil},
		"one of two":                {four[:2], 1, 100, one(1, 1.3), []who{{1, 0, 19}}},
		"alone":                     {four[:1], 1, 100, one(0, 2), []who{{All, 0, 19}}},
		"all faster than profiled":  {four, 1, 100, func(int, int) float64 { return 0.5 }, nil},
		"one as profiled of faster": {four, 1, 100, func(_, k int) float64 { return 0.5 + 0.5*float64(k/3) }, nil},
		"all slower alike":          {four, 1, 500, func(int, int) float64 { return 1.8 }, []who{{All, 0, 19}}},
		"alike but for noise": {four, 1, 500, func(i, k int) float64 { return 1.8 + 0.1*float64((i+k)%4) },
			[]who{{All, 0, 19}}},
		"alike, and one more": {four, 1, 100, func(_, k int) float64 { return 1.5 + 0.5*float64(k/3) },
			[]who{{3, 0, 19}, {All, 0, 19}}},
		"most": {four, 1, 100, func(_, k int) float64 { return 1 + 0.5*float64(min(k, 1)) },
			[]who{{1, 0, 19}, {2, 0, 19}, {3, 0, 19}}},
		"one host of two": {four, 1, 100, func(_, k int) float64 { return 1 + 0.5*float64(k/2) },
			[]who{{2, 0, 19}, {3, 0, 19}}},
		"not for long": {four, 1, 200, func(i, k int) float64 {
			if k == 1 && i%20 != 0 {
				return 3
			}
			return 1
		}, nil},
		"from step 30 to 59, and again from 90": {four, 1, 200, func(i, k int) float64 {
			if k == 1 && (i >= 30 && i < 60 || i >= 90) {
				return 2
			}
			return 1
		}, []who{{1, 30, 49}, {1, 60, 79}, {1, 90, 109}}},
		"replicas in turn": {[]float64{0.05, 0.05, 0.10}, 2, 100, func(i, k int) float64 {
			if k == 2 {
				return 1
			}
			return 2 * float64((i+k)%2)
		}, nil},
		"one of replicas in turn": {[]float64{0.05, 0.05, 0.10}, 2, 100, func(i, k int) float64 {
			if k == 2 {
				return 1
			}
			return (2 + float64(k)) * float64((i+k)%2)
		}, []who{{1, 0, 19}}},
		"groups of three":         {four, 3, 100, one(2, 2), []who{{2, 0, 20}}},
		"one that has no work":    {[]float64{0.1, 0, 0.1}, 1, 100, func(int, int) float64 { return 1 }, nil},
		"steps of 4 ms":           {[]float64{0.001, 0.004}, 1, 100, one(0, 2), []who{{0, 0, 62}}},
		"nobody has any work":     {[]float64{0, 0}, 1, 100, func(int, int) float64 { return 1 }, nil},
		"nobody is watched":       {nil, 1, 100, nil, nil},
		"one that does not start": {four, 1, 100, one(2, 0), nil},
	} {
		var got []who
		for _, c := range told(New(c.profileS, c.group), steps(c.n, c.profileS, c.pace)) {
			got = append(got, who{c.Worker, c.From, c.To})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: told of %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatIsSaidOfAStraggler(t *testing.T) {
	all := steps(80, []float64{0.01, 0.02, 0.03}, func(i, k int) float64 {
		if k == 1 && i < 40 {
			return 1.5 + 0.25*float64(i%2)
		}
		return 1.1
	})
	got := told(New([]float64{0.01, 0.02, 0.03}, 1), all)
	want := []Change{
		{Worker: 1, Times: 1.625, Others: 1.1, Slow: 1, From: 0, To: 19, BusyS: 0.0325, ProfileS: 0.02},
		{Worker: 1, Over: true, Times: 1.1, Others: 1.1, From: 40, To: 59, BusyS: 0.022, ProfileS: 0.02},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, g := range got {
		w := want[i]
		if math.Abs(g.Times-w.Times)+math.Abs(g.Others-w.Others)+math.Abs(g.BusyS-w.BusyS) > 1e-9 {
			t.Errorf("%+v, want %+v", g, w)
		}
		if g.Times, g.Others, g.BusyS = w.Times, w.Others, w.BusyS; g != w {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
}

// isSlow reports whether a worker is slow in a group of steps, directly from the definition.
func isSlow(all [][]float64, profileS []float64, group, g, worker int) bool {
	times := func(k int) float64 {
		sum := 0.0
		for _, busy := range all[g*group : (g+1)*group] {
			sum += busy[k]
		}
		return sum / (profileS[k] * float64(group))
	}
	own := times(worker)
	others := math.Inf(1)
	for k := range profileS {
		n := 0
		for j := range profileS {
			if times(j) <= times(k) {
				n++
			}
		}
		if 4*n >= len(profileS) && times(k) < others { // at least a quarter of the workers are as fast as k or faster
			others = times(k)
		}
	}
	return own > 1.25 && own > 1.25*others
}

// In random runs, the reported stragglers and their times follow from the definition, step by step and worker by
// worker.
func TestStragglersAreThoseOfTheDefinition(t *testing.T) {
	named := 0
	for seed := range uint64(400) {
		g := rand.New(rand.NewPCG(seed, 7))
		workers, group, n := 1+g.IntN(6), 1+g.IntN(4), 60+g.IntN(300)
		profileS := make([]float64, workers)
		level := make([]float64, workers)
		for k := range profileS {
			profileS[k], level[k] = 0.01*(0.1+g.Float64()), 1
		}
		all := steps(n, profileS, func(_, k int) float64 {
			if g.IntN(60) == 0 {
				level[k] = 0.8 + g.Float64()
			}
			return level[k] * (1 + 0.02*g.NormFloat64())
		})
		type event struct {
			step, worker int
			over         bool
		}
		var got, want []event
		for _, c := range told(New(profileS, group), all) {
			if c.Worker != All {
				got = append(got, event{c.To, c.Worker, c.Over})
			}
		}
		need := int(math.Ceil(math.Max(20, math.Ceil(0.25/slices.Max(profileS))) / float64(group)))
		is := make([]bool, workers)
		for last := need - 1; (last+1)*group <= n; last++ {
			for k := range workers {
				all20, none20 := true, true
				for b := last - need + 1; b <= last; b++ {
					slow := isSlow(all, profileS, group, b, k)
					all20, none20 = all20 && slow, none20 && !slow
				}
				if all20 && !is[k] || none20 && is[k] {
					is[k] = all20
					want = append(want, event{(last+1)*group - 1, k, none20})
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, %d workers in groups of %d: %v, want %v", seed, workers, group, got, want)
		}
		named += len(got)
	}
	if named < 50 {
		t.Errorf("%d changes in all runs", named)
	}
}

// While a worker is a straggler, each report covers 20 steps and has the factor of these steps. Here the factors are
// 1.5 and then 3. In the last 20 steps the worker is as fast as profiled.
func TestAStragglersFactorIsOfItsLastSteps(t *testing.T) {
	w := New([]float64{0.1, 0.1}, 1)
	var got []Change
	for i := range 60 {
		got = append(got, w.Step(i, []float64{0.1, 0.1 * []float64{1.5, 3, 1}[i/20]})...)
	}
	want := []Change{{Worker: 1, Times: 1.5, From: 0, To: 19}, {Worker: 1, Still: true, Times: 3, From: 20, To: 39},
		{Worker: 1, Over: true, Times: 1, From: 40, To: 59}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, c := range got {
		if x := want[i]; c.Worker != x.Worker || c.Still != x.Still || c.Over != x.Over || c.From != x.From ||
			c.To != x.To || math.Abs(c.Times-x.Times) > 1e-9 || c.Others != 1 {
			t.Errorf("%+v, want %+v", c, x)
		}
	}
}
