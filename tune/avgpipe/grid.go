package avgpipe

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
)

// Grid returns every setting of AvgPipe's degrees for a batch. M is `batch` divided by each of the `sizes`, and N is 1
// to `pipelines`. The order is by M, then by N.
//
// Errors: no pipelines, and no size that divides the batch.
func Grid(batch int, sizes []int, pipelines int) ([]Degrees, error) {
	if batch < 1 {
		return nil, fmt.Errorf("tune: batch of %d samples; it must be 1 at least", batch)
	}
	if pipelines < 1 || pipelines > plan.MaxPipelines {
		return nil, fmt.Errorf("tune: %d pipelines; 1 is plain training, 2 to %d are AvgPipe's", pipelines, plan.MaxPipelines)
	}
	var micros []int
	for _, size := range sizes {
		if size > 0 && batch%size == 0 {
			micros = append(micros, batch/size)
		}
	}
	if len(micros) == 0 {
		return nil, fmt.Errorf("tune: none of the micro-batch sizes %v divides a batch of %d; change the batch or profile "+
			"other sizes", sizes, batch)
	}
	slices.Sort(micros)
	var grid []Degrees
	for _, m := range slices.Compact(micros) {
		for n := range pipelines {
			grid = append(grid, Degrees{m, n + 1})
		}
	}
	return grid, nil
}

// Scored is a setting with its time and memory, as predicted or as measured.
type Scored struct {
	At          Degrees `json:"at"`
	StepS       float64 `json:"step_s"` // seconds for one batch
	MemoryBytes []int64 `json:"memory_bytes"`
}

// Peak returns the memory of the fullest device.
func (s Scored) Peak() int64 {
	if len(s.MemoryBytes) == 0 {
		return 0
	}
	return slices.Max(s.MemoryBytes)
}

// fits says whether a setting keeps to a limit for each device. A limit of 0 means no limit.
func (s Scored) fits(limit int64) bool { return limit == 0 || s.Peak() <= limit }

// LimitError says that no setting keeps to a limit.
type LimitError struct {
	LimitBytes    int64
	SmallestBytes int64 // the least limit that a setting keeps to
	At            Degrees
	Together      bool // the limit is for all workers together, not for each
}

func (e *LimitError) Error() string {
	of := "for each worker"
	if e.Together {
		of = "for all workers together"
	}
	return fmt.Sprintf("tune: no setting fits %s %s; the smallest limit that one would fit is %s (%dB): %s",
		terminal.Bytes(e.LimitBytes), of, terminal.Bytes(e.SmallestBytes), e.SmallestBytes, e.At)
}

// fastest returns the fastest setting that fits. Among equally fast ones it takes the one with the least memory
// (section 5.2.3: the best prediction that satisfies the memory constraint).
func fastest(all []Scored, limit int64) (Scored, error) {
	var best Scored
	for _, s := range all {
		if s.fits(limit) && (best.StepS == 0 || s.StepS < best.StepS || s.StepS == best.StepS && s.Peak() < best.Peak()) {
			best = s
		}
	}
	if best.StepS == 0 {
		return best, smallest(all, limit)
	}
	return best, nil
}

// closeEnough is the relative difference of two steps below which a prediction cannot rank them.
const closeEnough = 0.005

// frugal returns the setting with the least memory among those within closeEnough of the fastest.
func frugal(all []Scored, limit int64) (Scored, error) {
	best, err := fastest(all, limit)
	if err != nil {
		return best, err
	}
	least := best
	for _, s := range all {
		if s.fits(limit) && s.StepS <= best.StepS*(1+closeEnough) && s.Peak() < least.Peak() {
			least = s
		}
	}
	return least, nil
}

// MaxNum is the guideline that takes the most micro-batches, and then the most pipelines (section 7.3). MaxSize takes
// the largest micro-batches and then the most pipelines. Neither considers times.
func MaxNum(all []Scored, limit int64) (Scored, error) {
	return guideline(all, limit, func(a, b int) bool { return a > b })
}

// MaxSize is the guideline that takes the largest micro-batches; see MaxNum.
func MaxSize(all []Scored, limit int64) (Scored, error) {
	return guideline(all, limit, func(a, b int) bool { return a < b })
}

func guideline(all []Scored, limit int64, prefers func(m, than int) bool) (Scored, error) {
	var best Scored
	for _, s := range all {
		if !s.fits(limit) {
			continue
		}
		m, than := s.At.MicroBatches, best.At.MicroBatches
		if than == 0 || prefers(m, than) || m == than && s.At.Pipelines > best.At.Pipelines {
			best = s
		}
	}
	if best.At.MicroBatches == 0 {
		return best, smallest(all, limit)
	}
	return best, nil
}

func smallest(all []Scored, limit int64) error {
	if len(all) == 0 {
		return fmt.Errorf("tune: no settings to choose from")
	}
	least := slices.MinFunc(all, func(a, b Scored) int { return int(min(max(a.Peak()-b.Peak(), -1), 1)) })
	return &LimitError{LimitBytes: limit, SmallestBytes: least.Peak(), At: least.At}
}
