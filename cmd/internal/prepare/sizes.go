package prepare

import (
	"slices"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// These limit the sizes that are worth measuring: the maximal number of sizes, the maximal number of micro-batches in a
// step, and the minimal ratio of neighbouring sizes.
const (
	mostSizes        = 9
	mostMicroBatches = 64
	sizesApart       = 1.2
)

// MicroBatches returns the sizes that are worth measuring for a job. There is only one if the job fixes the size, or if
// its micro-batches are whole minibatches. Otherwise the sizes are divisors of the batch that are far enough apart,
// first of all those that give each of the job's workers as many micro-batches as the others. Costs of sizes between
// two measured ones are interpolated.
func MicroBatches(j *job.Job) []int { return microBatches(j, j.Machine.Workers) }

func microBatches(j *job.Job, workers int) []int {
	switch {
	case j.Plan.MicroBatch > 0:
		return []int{j.Plan.MicroBatch}
	case j.Plan.MicroBatches > 0 && j.Plan.Batch%j.Plan.MicroBatches == 0:
		return []int{j.Plan.Batch / j.Plan.MicroBatches}
	case wholeMinibatches(j):
		return []int{j.Plan.Batch}
	}
	all := slices.DeleteFunc(plan.Divisors(j.Plan.Batch), func(n int) bool { return j.Plan.Batch/n > mostMicroBatches })
	even := slices.DeleteFunc(slices.Clone(all), func(n int) bool { return j.Plan.Batch/n%max(1, workers) != 0 })
	for apart := sizesApart; ; apart *= 1.1 {
		if sizes := spaced(slices.Concat(all, even), apart); len(sizes) <= mostSizes {
			return sizes
		}
	}
}

// wholeMinibatches reports whether a job fixes a schedule or a weight policy whose minibatches are single
// micro-batches.
func wholeMinibatches(j *job.Job) bool {
	f, err := family.Lookup(j.Plan.Schedule)
	return err == nil && f.Whole || j.Plan.Schedule == "" && schedule.Policy(j.Plan.Weights).Served()
}

// spaced goes through numbers from the last to the first. It keeps each number that is `apart` times as large or as
// small as every number that it has kept. The result is ascending.
func spaced(all []int, apart float64) []int {
	var sizes []int
	for _, n := range slices.Backward(all) {
		if !slices.ContainsFunc(sizes, func(k int) bool { return float64(max(n, k)) < apart*float64(min(n, k)) }) {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// Wanted returns the sizes to measure. For a given plan these are all its sizes; without a plan, as many sizes as can
// be measured soon.
func (p *Prepared) Wanted() Wanted {
	w := Wanted{Sizes: p.Sizes()}
	if p.Plan != nil {
		w.Every, w.Workers = true, len(p.Plan.Devices())
	}
	return w
}

// mostReplicas is the number of devices up to which searches try any number of replicas.
const mostReplicas = 32

// sizesToDescribe returns the micro-batch sizes for which to compute costs on described devices, and further sizes that
// only slices of micro-batches have. If the job fixes the size, the result has the other sizes that are worth trying
// too. From these a search knows which plans of this size are rivals of others. It then also has the numbers of samples
// that a worker gets of a micro-batch, for the numbers of replicas that searches try.
func (p *Prepared) sizesToDescribe() (sizes, divided []int) {
	if sizes = p.Sizes(); p.Plan != nil {
		return sizes, nil
	}
	workers := len(p.Cluster.Devices)
	if len(sizes) == 1 {
		fixed, free := sizes[0], *p.Job
		for n := 2; n <= min(fixed, workers); n++ {
			if n > mostReplicas && workers%n != 0 && n&(n-1) != 0 && n != fixed {
				continue
			}
			divided = append(divided, fixed/n, (fixed+n-1)/n)
		}
		free.Plan.MicroBatch, free.Plan.MicroBatches = 0, 0
		sizes = append(microBatches(&free, workers), fixed)
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
	}
	divided = append(divided, slicesOf(sizes, workers)...)
	slices.Sort(divided)
	return sizes, slices.DeleteFunc(slices.Compact(divided), func(n int) bool { return slices.Contains(sizes, n) })
}

// slicesOf returns the number of samples that each worker computes if all workers share a micro-batch of the smallest
// size. It returns nil if this slice is not smaller than the micro-batch. Costs of sizes between the slice and the
// smallest size are interpolated.
func slicesOf(sizes []int, workers int) []int {
	smallest := slices.Min(sizes)
	if least := max(1, smallest/workers); least < smallest {
		return []int{least}
	}
	return nil
}
