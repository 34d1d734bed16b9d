package job

import (
	"fmt"
	"math"
	"strconv"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/plan"
)

// count is a number of things that a key says.
type count struct {
	key string
	n   int
}

// checkCounts refuses numbers of things that are none, or beyond what there may be.
func (j *Job) checkCounts() error {
	for _, c := range []struct {
		count
		most int
	}{{count{"workers", j.Workers}, mostWorkers}, {count{"batch", j.Batch}, plan.MaxBatch},
		{count{"steps", j.Steps}, math.MaxInt}, {count{"threads_per_worker", j.ThreadsPerWorker}, math.MaxInt}} {
		switch {
		case c.n < 1 && c.most == math.MaxInt:
			return j.wrong(c.key, c.n, "a whole number, 1 or more")
		case c.n < 1 || c.n > c.most:
			return j.wrong(c.key, c.n, fmt.Sprintf("a whole number from 1 to %d", c.most))
		}
	}
	for _, c := range []count{{"cores", j.Cores}, {"stages", j.Stages}, {"micro_batch", j.MicroBatch},
		{"micro_batches", j.MicroBatches}, {"pipelines", j.Pipelines}} {
		if c.n < 0 || c.n == 0 && j.Given(c.key) {
			return j.wrong(c.key, c.n, atLeastOne)
		}
	}
	for _, c := range []count{{"eval_every", j.EvalEvery}, {"save_every", j.SaveEvery}, {"keep", j.Keep}} {
		if c.n < 0 {
			return j.wrong(c.key, c.n, "a whole number, 0 or more")
		}
	}
	if j.EvalRows < 0 && (j.EvalRows != Auto || j.Given("eval_rows")) {
		return j.wrong("eval_rows", j.EvalRows, "a number of test samples, or 0 for all")
	}
	if !(j.TrainPart >= 0 && j.TrainPart <= 1) || j.TrainPart == 0 && j.Given("train_part") {
		return j.wrong("train_part", j.TrainPart, "a part above 0; with 1 all rows train")
	}
	if j.Alpha == Auto && j.Given("alpha") {
		return j.wrong("alpha", j.Alpha, "a part from 0 to 1, or leave it out")
	}
	if !(j.Clip >= 0) || math.IsInf(j.Clip, 0) {
		return j.wrong("clip", j.Clip, "the gradient norm to clip to, above 0, or 0 for none")
	}
	return nil
}

// checkChoices refuses words that are none of those that there are.
func (j *Job) checkChoices() error {
	for _, c := range []struct {
		key, value string
		of         []string
	}{{"collectives", j.Collectives, []string{Ordered, Native}},
		{"rate_scale", j.RateScale, []string{ScaleByPipelines, ScaleSplit}},
		{"bind", j.Bind, []string{BindAlways, BindNever}}, {"batch_norm", j.BatchNorm, []string{PerSlice}},
		{"boundary", j.Boundary, packing.Names}, {"save_mode", j.SaveMode, []string{SaveDrained, SaveStage}},
		{"averaging", j.Averaging, []string{string(plan.DiluteFirst), string(plan.UpdateFirst)}},
		{"reference", j.Reference, []string{string(plan.Inline), string(plan.Beside)}}} {
		if err := registry.OneOf(c.value, c.of); c.value != "" && err != nil {
			return fmt.Errorf("%s is %w, or leave it out", j.Called(c.key), err)
		}
	}
	if j.Advance != "" && !j.Advances() {
		if n, err := strconv.Atoi(j.Advance); err != nil || n < 0 {
			return j.wrong("advance", j.Advance, "a number of forwards, 0 or more, "+AutoAdvance+" or "+PrintedAdvance)
		}
	}
	return nil
}

// checkTogether refuses settings that mean nothing without others.
func (j *Job) checkTogether() error {
	elastic := ""
	if j.Averaging != "" {
		elastic = j.Called("averaging")
	}
	if j.Reference != "" {
		elastic = j.Called("reference")
	}
	if j.Alpha != Auto {
		elastic = j.Called("alpha")
	}
	switch {
	case j.TrainPart == 1 && j.EvalEvery > 0:
		return fmt.Errorf("with %s 1 all rows train, and %s is %d; leave one of them out", j.Called("train_part"),
			j.Called("eval_every"), j.EvalEvery)
	case elastic != "" && j.Pipelines == 0:
		return fmt.Errorf("%s is of pipelines side by side; give --pipelines too", elastic)
	case j.PostValidate && !(j.Clip > 0):
		return fmt.Errorf("%s is of updates that clip gradients, and would wait for their norm; give --clip too",
			j.Called("post_validate"))
	case j.RateScale == ScaleSplit && j.Pipelines == 0:
		return fmt.Errorf("%s %s sets alpha for pipelines side by side; give --pipelines too", j.Called("rate_scale"),
			j.RateScale)
	case j.SaveMode == SaveStage && j.SaveEvery == 0:
		return fmt.Errorf("%s %s is of checkpoints as the run goes on; give --save-every too", j.Called("save_mode"),
			j.SaveMode)
	case j.ResumeAveraged && j.Resume == "":
		return fmt.Errorf("%s is of a checkpoint to go on from; give --resume too", j.Called("resume_averaged"))
	}
	return nil
}
