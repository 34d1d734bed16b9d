package curves

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/stats"
)

// TimeTo returns how many seconds a training takes to reach a target: its epochs, times the batches in an epoch, times
// the time of a batch. The time of evaluations is not counted.
func TimeTo(epochs float64, samples, batch int, batchS float64) float64 {
	return epochs * float64(samples) / float64(batch) * batchS
}

// Speedup says how much faster one method is than another.
type Speedup struct {
	Batch    float64        // speedup of a batch: median ratio of the rounds
	Interval stats.Interval // of Batch
	Epochs   float64        // epochs of the other method divided by those of this one; 0: not known
	Target   float64        // speedup to the target: Batch x Epochs; 0: not known
}

// SpeedupOf compares the batch times of two methods round by round, and their epochs to a target. 0 epochs means that
// the target was not reached. It refuses rounds that do not match, times that are not above 0, and too few rounds for
// an interval.
func SpeedupOf(thisS, otherS []float64, thisEpochs, otherEpochs float64) (Speedup, error) {
	if len(thisS) != len(otherS) {
		return Speedup{}, fmt.Errorf("curves: %d rounds of one method and %d of the other", len(thisS), len(otherS))
	}
	var ratios []float64
	for i, s := range thisS {
		if !(s > 0) || !(otherS[i] > 0) {
			return Speedup{}, fmt.Errorf("curves: round %d took %v and %v s; both must be above 0", i, s, otherS[i])
		}
		ratios = append(ratios, otherS[i]/s)
	}
	between, err := stats.MedianInterval(ratios, 0.95)
	if err != nil {
		return Speedup{}, err
	}
	s := Speedup{Batch: stats.Median(ratios), Interval: between}
	if thisEpochs > 0 && otherEpochs > 0 {
		s.Epochs = otherEpochs / thisEpochs
		s.Target = s.Batch * s.Epochs
	}
	return s, nil
}
