package curves

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/trace"
)

// learns returns a setting of two methods with two seeds. It trains for half an epoch of 320 samples in batches of 16,
// which is ten steps. With 20 evaluations in an epoch, there is one after each step.
func learns(t *testing.T) *Setting {
	t.Helper()
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	j := job.Default()
	j.Model.Name, j.Plan.Batch, j.Train.Steps, j.Train.EvalRows = "mlp", 16, 10, 0
	if err := j.Complete(); err != nil {
		t.Fatal(err)
	}
	methods, err := ReadMethods([]string{"sync", "stash"})
	if err != nil {
		t.Fatal(err)
	}
	return &Setting{Job: &j, Model: m, Base: Alone(m, 16, 16), Micros: 4, Methods: methods, Seeds: 2,
		Epochs: 0.5, Evals: 20,
		Rows: 320}
}

func TestLearnTrainsWhatTheFileDoesNotHave(t *testing.T) {
	s := learns(t)
	file, err := OpenTrainings(filepath.Join(t.TempDir(), "trainings.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var trained atomic.Int64
	why := errors.New("the machine is on fire")
	train := func(failing uint64) func(context.Context, Task) (Training, error) {
		return func(_ context.Context, task Task) (Training, error) {
			if task.Job.Data.Seed == failing {
				return Training{}, why
			}
			trained.Add(1)
			if task.Steps != 10 || task.EvalEvery != 1 || task.Plan.StepSamples() != 16 || task.Job.Train.Rate.Total != 10 {
				t.Errorf("%s: %d steps of %d samples, evaluated every %d, a rate over %d", task.Method.Name, task.Steps,
					task.Plan.StepSamples(), task.EvalEvery, task.Job.Train.Rate.Total)
			}
			return task.Training([]trace.Evaluation{{Step: 9, Loss: 2, Samples: 4, Correct: 1}}, ""), nil
		}
	}
	var log bytes.Buffer
	if _, err := s.Learn(t.Context(), file, 1, &log, train(s.Job.Data.Seed+1)); !errors.Is(err, why) ||
		trained.Load() != 2 {
		t.Fatalf("%v behind %d trainings; the third fails", err, trained.Load())
	}
	all, err := s.Learn(t.Context(), file, 3, &log, train(0))
	if err != nil || trained.Load() != 4 || !strings.Contains(log.String(), "4 trainings, 2 of them from the file") {
		t.Fatalf("%v, %d trainings:\n%s", err, trained.Load(), &log)
	}
	for _, name := range []string{"sync", "stash"} {
		of := all[name]
		if len(of) != 2 || of[0].Seed != s.Job.Data.Seed || of[1].Seed != s.Job.Data.Seed+1 ||
			!slices.Equal(of[0].Points, []Point{{Epoch: 0.5, Loss: 2, Accuracy: 0.25}}) {
			t.Errorf("%s: %+v", name, of)
		}
	}
	s.Job.Train.Rate.Base *= 2 // with another rate it is another training
	if found, err := s.Found(file); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	s.Job.Train.Rate.Base = math.NaN()
	if _, err := s.Learn(t.Context(), file, 1, &log, train(0)); err == nil || !strings.Contains(err.Error(), "sync: ") {
		t.Errorf("a rate that is no number: %v", err)
	}
}

// A training ends when an evaluation is not finite.
func TestATrainingEndsWhereItDiverges(t *testing.T) {
	tasks, err := learns(t).Tasks()
	if err != nil {
		t.Fatal(err)
	}
	some := []trace.Evaluation{{Step: 0, Loss: 3, Samples: 2, Correct: 1}, {Step: 1, Loss: math.Inf(1), Samples: 2},
		{Step: 2, Loss: 1, Samples: 2}}
	if one := tasks[0].Training(some, ""); len(one.Points) != 1 || !strings.Contains(one.Diverged,
		"behind step 2 gave +Inf") {
		t.Errorf("%+v", one)
	}
	if one := tasks[0].Training(nil, "NaN"); one.Points == nil || one.Diverged != "NaN" ||
		one.end() != "diverged at once" {
		t.Errorf("%+v", one)
	}
}
