package prepare

import (
	"slices"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Sizes worth measuring are bounded in number and in the micro-batches of a step. Each is so many times as large as
// the one before.
const (
	mostSizes        = 9
	mostMicroBatches = 64
	sizesApart       = 1.2
)

// MicroBatches is the sizes worth measuring for a job: those that divide the batch and are not nearly as large as
// another one; or the one that is fixed. A size between two that are measured costs what lies between theirs.
func MicroBatches(j *job.Job) []int {
	switch {
	case j.Plan.MicroBatch > 0:
		return []int{j.Plan.MicroBatch}
	case j.Plan.MicroBatches > 0 && j.Plan.Batch%j.Plan.MicroBatches == 0:
		return []int{j.Plan.Batch / j.Plan.MicroBatches}
	case wholeMinibatches(j):
		return []int{j.Plan.Batch}
	}
	all := slices.DeleteFunc(plan.Divisors(j.Plan.Batch), func(n int) bool { return j.Plan.Batch/n > mostMicroBatches })
	for apart := sizesApart; ; apart *= 1.1 {
		if sizes := spaced(all, apart); len(sizes) <= mostSizes {
			return sizes
		}
	}
}

// wholeMinibatches says whether a job fixes a schedule, or a weight policy, whose minibatches are one micro-batch each.
func wholeMinibatches(j *job.Job) bool {
	f, err := family.Lookup(j.Plan.Schedule)
	return err == nil && f.Whole || j.Plan.Schedule == "" && schedule.Policy(j.Plan.Weights).Served()
}

// spaced is the largest of some numbers, and of the others, which ascend, those that are so many times smaller than
// the one behind.
func spaced(all []int, apart float64) []int {
	var sizes []int
	for _, n := range slices.Backward(all) {
		if len(sizes) == 0 || float64(n)*apart <= float64(sizes[len(sizes)-1]) {
			sizes = append(sizes, n)
		}
	}
	slices.Reverse(sizes)
	return sizes
}

// slicesOf is the smallest slice of the smallest of some sizes that replicas split among so many workers, where that is
// smaller: what lies between costs what lies between theirs.
func slicesOf(sizes []int, workers int) []int {
	smallest := slices.Min(sizes)
	if least := max(1, smallest/workers); least < smallest {
		return []int{least}
	}
	return nil
}
