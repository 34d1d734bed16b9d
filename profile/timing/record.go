package timing

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// Version is the version of the JSON form of Record and Links, and of what is measured. If a file has another version,
// its measurements are made again.
const Version = 1

// Record holds the measurements of one model on one kind of machine. They are for one number of concurrent workers and
// one number of threads per worker.
type Record struct {
	Version     int    `json:"version"`
	Model       string `json:"model"`
	ModelID     string `json:"model_id"`
	Settings    string `json:"settings,omitempty"` // settings with which the model was built, as text for people
	Machine     string `json:"machine"`            // all else that times depend on; not interpreted here
	Engine      string `json:"engine"`
	Device      string `json:"device"`
	Concurrency int    `json:"concurrency"` // workers that computed at once
	Threads     int    `json:"threads"`     // threads of each worker

	Sittings []Sitting `json:"sittings"`
	Updates  []Updates `json:"updates"`
}

// Sitting holds the rounds of one period of measuring.
type Sitting struct {
	Began  time.Time `json:"began"`
	Rounds []Round   `json:"rounds"`
}

// Round holds one visit to each size. A round of a quick sitting may lack some sizes, and so may the last round of a
// sitting that was stopped.
type Round []Visit

// Visit is the result of one visit to one micro-batch size.
type Visit struct {
	MicroBatch int     `json:"micro_batch"`
	TookS      float64 `json:"took_s"`
	// Behind compares the slowest worker with the mean of all workers. It is how much slower that worker was, as a
	// fraction; null if only one worker computed.
	Behind *float64 `json:"behind,omitempty"`
	// PassesS holds times of whole passes, forward and backward, in seconds. If there were more passes than keptPasses,
	// they were sorted by length, and only evenly spaced ones are kept.
	PassesS []float64    `json:"passes_s"`
	Layers  []LayerVisit `json:"layers"`
}

// LayerVisit holds the medians of one layer's times, in seconds, and the allocator's counts.
type LayerVisit struct {
	ForwardS        float64  `json:"forward_s"`
	BackwardS       float64  `json:"backward_s"`
	BackwardInputS  *float64 `json:"backward_input_s,omitempty"`
	BackwardWeightS *float64 `json:"backward_weight_s,omitempty"`
	BareForwardS    *float64 `json:"bare_forward_s,omitempty"`
	AgainS          *float64 `json:"again_s,omitempty"`
	FeedS           float64  `json:"feed_s,omitempty"`
	// Bytes is null if the sitting's previous visit to this size found the same bytes.
	Bytes *LayerBytes `json:"bytes,omitempty"`
}

// LayerBytes holds sizes in bytes, as in LayerTiming.
type LayerBytes struct {
	Output            int64               `json:"output"`
	Saved             int64               `json:"saved"`
	Pending           int64               `json:"pending"`
	InputLeaves       int64               `json:"input_leaves"`
	ForwardPeak       int64               `json:"forward_peak"`
	BackwardPeak      int64               `json:"backward_peak"`
	FirstBackwardPeak int64               `json:"first_backward_peak"`
	HalvesPeaks       profile.HalvesPeaks `json:"halves_peaks"`
}

// Updates holds the times of updates with one optimizer.
type Updates struct {
	Settings string                `json:"settings"` // the optimizer's settings; not interpreted here
	Kind     string                `json:"kind"`
	States   int                   `json:"states"`
	Passes   int                   `json:"passes"`
	Layers   []profile.UpdateTimes `json:"layers"`
}

// Load says how many workers compute during a measurement.
type Load struct {
	Concurrency int // workers that compute at once [1]
	Threads     int // threads of each worker [1]
	Workers     int // workers in training, where they may take turns on cores [2]
}

// NewRecord returns an empty Record.
func NewRecord(m *model.Model, machine string, with Load) *Record {
	return &Record{Version: Version, Model: m.Name, ModelID: m.ID(), Machine: machine,
		Concurrency: max(with.Concurrency, 1), Threads: max(with.Threads, 1)}
}

var records = document.Store[Record]{
	Room: "timing", Bytes: document.MaxBytes, Check: (*Record).validate, Missing: "it is made by the first measurement",
	Decode: document.Versioned("record of measurements", Version, "millrace profile rm removes it",
		(*Record).validate),
	Encode: func(w io.Writer, r *Record, _ string) error { return json.NewEncoder(w).Encode(r) }, // one line of text
}

// ReadRecord reads a Record's file.
func ReadRecord(path string) (*Record, error) { return records.Read(path) }

// Write writes the Record to a file, either the whole file or nothing.
func (r *Record) Write(path string) error { return records.Write(path, r) }

// Same reports whether two records are of the same model and machine, with the same numbers of workers and threads.
func (r *Record) Same(o *Record) bool {
	return r.ModelID == o.ModelID && r.Machine == o.Machine && r.Concurrency == o.Concurrency && r.Threads == o.Threads
}

// Merge adds the sittings of another record of the same kind to r. It leaves out a sitting that began at the same time
// as one of r. It also adds updates by optimizers that r lacks. If both have updates by one optimizer, those that were
// measured in more passes are kept.
func (r *Record) Merge(o *Record) {
	r.Sittings, r.Updates = slices.Clone(r.Sittings), slices.Clone(r.Updates)
	for _, theirs := range o.Sittings {
		if !slices.ContainsFunc(r.Sittings, func(own Sitting) bool { return own.Began.Equal(theirs.Began) }) {
			r.Sittings = append(r.Sittings, theirs)
		}
	}
	slices.SortStableFunc(r.Sittings, func(a, b Sitting) int { return a.Began.Compare(b.Began) })
	for _, theirs := range o.Updates {
		if own := r.updates(theirs.Settings); own == nil {
			r.Updates = append(r.Updates, theirs)
		} else if own.Passes < theirs.Passes {
			*own = theirs
		}
	}
}

func (r *Record) validate() error {
	layers := -1
	alike := func(n int) bool {
		if layers < 0 {
			layers = n
		}
		return n == layers && n > 0
	}
	if r.Concurrency < 1 || r.Threads < 1 {
		return fmt.Errorf("timing: concurrency %d, threads %d; both are 1 at least", r.Concurrency, r.Threads)
	}
	for s, sitting := range r.Sittings {
		for k, round := range sitting.Rounds {
			for _, v := range round {
				if err := v.validate(alike); err != nil {
					return fmt.Errorf("timing: sittings[%d].rounds[%d]: micro-batch %d: %w", s, k, v.MicroBatch, err)
				}
			}
		}
	}
	for _, u := range r.Updates {
		if !alike(len(u.Layers)) {
			return fmt.Errorf("timing: updates of %s have %d layers; the visits have %d", u.Kind, len(u.Layers), layers)
		}
		for _, t := range u.Layers {
			if !isTime(t.UpdateS) || !isTime(t.PulledUpdateS) || !isTime(t.ReferenceUpdateS) {
				return fmt.Errorf("timing: updates of %s have times %+v; they are 0 at least", u.Kind, t)
			}
		}
	}
	return nil
}

func isTime(s float64) bool { return s >= 0 && !math.IsInf(s, 1) }

func (v *Visit) validate(alike func(int) bool) error {
	if v.MicroBatch < 1 || !isTime(v.TookS) {
		return fmt.Errorf("it took %v s; sizes are 1 at least, and times 0", v.TookS)
	}
	if !alike(len(v.Layers)) {
		return fmt.Errorf("%d layers, not as many as others have", len(v.Layers))
	}
	all := slices.Clone(v.PassesS)
	if v.Behind != nil {
		all = append(all, *v.Behind)
	}
	for _, l := range v.Layers {
		all = append(all, l.ForwardS, l.BackwardS, l.FeedS)
		for _, s := range []*float64{l.BackwardInputS, l.BackwardWeightS, l.BareForwardS, l.AgainS} {
			if s != nil {
				all = append(all, *s)
			}
		}
	}
	for _, s := range all {
		if !isTime(s) {
			return fmt.Errorf("a time of %v s; times are 0 at least", s)
		}
	}
	return nil
}

// keptPasses is how many whole passes of a visit are kept.
const keptPasses = 16

// visitOf summarises the timings of a visit.
func visitOf(size int, tookS float64, all []LayerTiming) Visit {
	v := Visit{MicroBatch: size, TookS: rounded(tookS), Behind: behind(all), PassesS: wholePasses(all)}
	for i := range all {
		t := &all[i]
		l := LayerVisit{
			ForwardS: rounded(stats.Median(t.ForwardS)), BackwardS: rounded(stats.Median(t.BackwardS)),
			FeedS: rounded(stats.Median(t.FeedS)),
			Bytes: &LayerBytes{
				Output: t.OutputBytes, Saved: t.SavedBytes, Pending: t.PendingBytes, InputLeaves: t.InputLeavesBytes,
				ForwardPeak: t.ForwardPeakBytes, BackwardPeak: t.BackwardPeakBytes,
				FirstBackwardPeak: t.FirstBackwardPeakBytes, HalvesPeaks: t.HalvesPeakBytes,
			},
		}
		if len(t.BackwardInputS) > 0 && len(t.BackwardWeightS) > 0 {
			l.BackwardInputS = new(rounded(stats.Median(t.BackwardInputS)))
			l.BackwardWeightS = new(rounded(stats.Median(t.BackwardWeightS)))
		}
		if len(t.BareForwardS) > 0 && len(t.AgainS) > 0 {
			l.BareForwardS, l.AgainS = new(rounded(stats.Median(t.BareForwardS))), new(rounded(stats.Median(t.AgainS)))
		}
		v.Layers = append(v.Layers, l)
	}
	return v
}

// rounded rounds a time to nanoseconds, the resolution of clocks.
func rounded(s float64) float64 { return math.Round(s*1e9) / 1e9 }

// wholePasses returns the lengths of up to keptPasses passes over all layers, ascending.
func wholePasses(all []LayerTiming) []float64 {
	forwards, backwards := summed(all, func(t *LayerTiming) []float64 { return t.ForwardS }),
		summed(all, func(t *LayerTiming) []float64 { return t.BackwardS })
	n := min(len(forwards), len(backwards))
	passes := make([]float64, 0, n)
	for i := range n {
		passes = append(passes, rounded(forwards[i]+backwards[i]))
	}
	slices.Sort(passes)
	if n <= keptPasses {
		return passes
	}
	kept := make([]float64, keptPasses)
	for i := range kept {
		kept[i] = passes[(2*i+1)*n/(2*keptPasses)]
	}
	return kept
}

// summed adds up the layers' times pass by pass. A layer without times does not have the phase, and is skipped.
func summed(all []LayerTiming, of func(*LayerTiming) []float64) []float64 {
	var sums []float64
	for i := range all {
		times := of(&all[i])
		switch {
		case len(times) == 0:
			continue
		case sums == nil:
			sums = slices.Clone(times)
			continue
		}
		sums = sums[:min(len(sums), len(times))]
		for p := range sums {
			sums[p] += times[p]
		}
	}
	return sums
}

// behind returns Visit.Behind.
func behind(all []LayerTiming) *float64 {
	var workers []float64
	for _, t := range all {
		workers = append(workers, make([]float64, max(0, len(t.WorkerS)-len(workers)))...)
		for w, s := range t.WorkerS {
			workers[w] += s
		}
	}
	sum := 0.0
	for _, s := range workers {
		sum += s
	}
	if len(workers) < 2 || sum <= 0 {
		return nil
	}
	return new(slices.Max(workers)*float64(len(workers))/sum - 1)
}

// lengthS returns the time of a median pass over the whole model, forward and backward, in seconds.
func (v *Visit) lengthS() float64 {
	sum := 0.0
	for i := range v.Layers {
		sum += v.Layers[i].ForwardS + v.Layers[i].BackwardS
	}
	return sum
}

// add adds a visit to the last round of the last sitting.
func (r *Record) add(v Visit) {
	rounds := r.Sittings[len(r.Sittings)-1].Rounds
	round := &rounds[len(rounds)-1]
	if len(rounds) > 1 { // unchanged byte counts are left out: they would take most of the file
		known := latestBytes(rounds[:len(rounds)-1], v.MicroBatch)
		for l := range v.Layers {
			if known != nil && *known[l] == *v.Layers[l].Bytes {
				v.Layers[l].Bytes = nil
			}
		}
	}
	*round = append(*round, v)
}

// latestBytes returns each layer's bytes from the last visit to a size that recorded them; nil if there is none.
func latestBytes(rounds []Round, size int) []*LayerBytes {
	var known []*LayerBytes
	for _, round := range rounds {
		for _, v := range round {
			if v.MicroBatch != size {
				continue
			}
			if known == nil {
				known = make([]*LayerBytes, len(v.Layers))
			}
			for l := range v.Layers {
				if b := v.Layers[l].Bytes; b != nil {
					known[l] = b
				}
			}
		}
	}
	return known
}

// visits returns all visits to a size, in order.
func (r *Record) visits(size int) []*Visit {
	var all []*Visit
	r.each(func(_, _ int, v *Visit) {
		if v.MicroBatch == size {
			all = append(all, v)
		}
	})
	return all
}

// each calls f for all visits in order, with the numbers of their sitting and round.
func (r *Record) each(f func(sitting, round int, v *Visit)) {
	for s := range r.Sittings {
		for k := range r.Sittings[s].Rounds {
			round := r.Sittings[s].Rounds[k]
			for i := range round {
				f(s, k, &round[i])
			}
		}
	}
}

// Sizes returns the measured micro-batch sizes, ascending, and how often each was visited.
func (r *Record) Sizes() (sizes, visits []int) {
	n := map[int]int{}
	r.each(func(_, _ int, v *Visit) { n[v.MicroBatch]++ })
	for size := range n {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		visits = append(visits, n[size])
	}
	return sizes, visits
}

// TookS returns the total time of all visits, in seconds.
func (r *Record) TookS() float64 {
	sum := 0.0
	r.each(func(_, _ int, v *Visit) { sum += v.TookS })
	return sum
}

// updates returns the measurements of an optimizer's updates, or nil.
func (r *Record) updates(settings string) *Updates {
	for i := range r.Updates {
		if r.Updates[i].Settings == settings {
			return &r.Updates[i]
		}
	}
	return nil
}
