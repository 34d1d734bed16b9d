package job

import (
	"fmt"
	"math"
	"strconv"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/plan"
)

// count is the value of a key that counts something.
type count struct {
	key string
	n   int
}

// checkCounts refuses numbers that are too small or too large.
func (j *Job) checkCounts() error {
	for _, c := range []struct {
		count
		most int
	}{{count{"workers", j.Machine.Workers}, mostWorkers}, {count{"batch", j.Plan.Batch}, plan.MaxBatch},
		{count{"steps", j.Train.Steps}, math.MaxInt},
		{count{"threads_per_worker", j.Machine.ThreadsPerWorker}, math.MaxInt}} {
		switch {
		case c.n < 1 && c.most == math.MaxInt:
			return j.wrong(c.key, c.n, "a whole number, 1 or more")
		case c.n < 1 || c.n > c.most:
			return j.wrong(c.key, c.n, fmt.Sprintf("a whole number from 1 to %d", c.most))
		}
	}
	for _, c := range []count{{"cores", j.Machine.Cores}, {"stages", j.Plan.Stages}, {"micro_batch", j.Plan.MicroBatch},
		{"micro_batches", j.Plan.MicroBatches}, {"pipelines", j.Plan.Elastic.Pipelines}} {
		if c.n < 0 || c.n == 0 && j.Given(c.key) {
			return j.wrong(c.key, c.n, atLeastOne)
		}
	}
	for _, c := range []count{{"eval_every", j.Train.EvalEvery}, {"save_every", j.Save.Every}, {"keep", j.Save.Keep}} {
		if c.n < 0 {
			return j.wrong(c.key, c.n, "a whole number, 0 or more")
		}
	}
	if j.Train.EvalRows < 0 && (j.Train.EvalRows != Auto || j.Given("eval_rows")) {
		return j.wrong("eval_rows", j.Train.EvalRows, "a number of test samples, or 0 for all")
	}
	if !(j.Data.TrainPart >= 0 && j.Data.TrainPart <= 1) || j.Data.TrainPart == 0 && j.Given("train_part") {
		return j.wrong("train_part", j.Data.TrainPart, "a part above 0; with 1 all rows train")
	}
	if j.Plan.Elastic.Alpha == Auto && j.Given("alpha") {
		return j.wrong("alpha", j.Plan.Elastic.Alpha, "a part from 0 to 1, or leave it out")
	}
	if !(j.Train.Clip >= 0) || math.IsInf(j.Train.Clip, 0) {
		return j.wrong("clip", j.Train.Clip, "the gradient norm to clip to, above 0, or 0 for none")
	}
	return nil
}

// checkChoices refuses a word that is not one of its setting's choices.
func (j *Job) checkChoices() error {
	for _, c := range []struct {
		key, value string
		of         []string
	}{{"collectives", j.Machine.Collectives, []string{Ordered, Native}},
		{"rate_scale", j.Train.RateScale, []string{ScaleByPipelines, ScaleSplit}},
		{"bind", j.Machine.Bind, []string{BindAlways, BindNever}}, {"batch_norm", j.Plan.BatchNorm, []string{PerSlice}},
		{"boundary", j.Plan.Boundary, packing.Names}, {"save_mode", j.Save.Mode, []string{SaveDrained, SaveStage}},
		{"averaging", j.Plan.Elastic.Averaging, []string{string(plan.DiluteFirst), string(plan.UpdateFirst)}},
		{"reference", j.Plan.Elastic.Reference, []string{string(plan.Inline), string(plan.Beside)}}} {
		if err := registry.OneOf(c.value, c.of); c.value != "" && err != nil {
			return fmt.Errorf("%s is %w, or leave it out", j.Called(c.key), err)
		}
	}
	if j.Plan.Advance != "" && !j.Plan.Advances() {
		if n, err := strconv.Atoi(j.Plan.Advance); err != nil || n < 0 {
			return j.wrong("advance", j.Plan.Advance, "a number of forwards, 0 or more, "+AutoAdvance+" or "+PrintedAdvance)
		}
	}
	return nil
}

// checkTogether refuses settings that have no meaning without others, or that contradict each other.
func (j *Job) checkTogether() error {
	elastic := ""
	if j.Plan.Elastic.Averaging != "" {
		elastic = j.Called("averaging")
	}
	if j.Plan.Elastic.Reference != "" {
		elastic = j.Called("reference")
	}
	if j.Plan.Elastic.Alpha != Auto {
		elastic = j.Called("alpha")
	}
	switch {
	case j.Data.TrainPart == 1 && j.Train.EvalEvery > 0:
		return fmt.Errorf("with %s 1 all rows train, and %s is %d; leave one of them out", j.Called("train_part"),
			j.Called("eval_every"), j.Train.EvalEvery)
	case elastic != "" && j.Plan.Elastic.Pipelines == 0:
		return fmt.Errorf("%s is of pipelines side by side; give --pipelines too", elastic)
	case j.Plan.PostValidate && !(j.Train.Clip > 0):
		return fmt.Errorf("%s is of updates that clip gradients, and would wait for their norm; give --clip too",
			j.Called("post_validate"))
	case j.Train.RateScale == ScaleSplit && j.Plan.Elastic.Pipelines == 0:
		return fmt.Errorf("%s %s sets alpha for pipelines side by side; give --pipelines too", j.Called("rate_scale"),
			j.Train.RateScale)
	case j.Save.Mode == SaveStage && j.Save.Every == 0:
		return fmt.Errorf("%s %s is of checkpoints as the run goes on; give --save-every too", j.Called("save_mode"),
			j.Save.Mode)
	case j.Save.ResumeAveraged && j.Save.Resume == "":
		return fmt.Errorf("%s is of a checkpoint to go on from; give --resume too", j.Called("resume_averaged"))
	}
	return nil
}
