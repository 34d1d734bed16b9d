package prepare

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// OpenEngine opens libtorch. A missing libtorch is an error of input, because the user can install it.
func OpenEngine() (*torch.Engine, error) {
	if err := loadWithoutThreads(); err != nil {
		return nil, err
	}
	e, err := torch.Open()
	if err != nil {
		return nil, cli.BadInput(err)
	}
	return e, checkSpace()
}

// textEvalRows is the default number of windows of a text in an evaluation. For a text of a few megabytes, all held-out
// windows would take longer than the training between two evaluations.
const textEvalRows = 256

// OpenData opens the job's data and checks that the model can read it. It also sets the number of evaluation rows if
// the job does not.
func OpenData(j *job.Job, m *model.Model) (*data.Set, error) {
	if j.Data.Source == "" {
		return nil, cli.BadInput(fmt.Errorf("no data is named; give --data digits, fashion-mnist, a folder of IDX files, a " +
			".csv, .npz or .safetensors file, or a text"))
	}
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	set, err := data.Open(j.Data.Source, data.Options{Seed: j.Data.Seed, Fields: fieldsOf(m), Target: m.Target(),
		TrainPart: j.Data.TrainPart, Tokenizer: j.Data.Tokenizer})
	if err != nil {
		return nil, cli.BadInput(fmt.Errorf("%w%s", err, asWide(j, m)))
	}
	if j.Train.EvalRows == job.Auto {
		j.Train.EvalRows = 0
		if set.Tokens {
			j.Train.EvalRows = textEvalRows
		}
	}
	return set, nil
}

// mlp and convnet are names of built-in models. An mlp reads rows of any width, and a convnet images of any size.
const mlp, convnet = "mlp", "convnet"

// asWide suggests settings with which an mlp, or the given convnet, can read data whose shape does not fit the model.
// It returns "" if the suggestion does not apply.
func asWide(j *job.Job, m *model.Model) string {
	if !slices.Contains(model.Names(), j.Model.Name) || m.Inputs[0].DType != model.Float || len(fieldsOf(m)) != 2 {
		return ""
	}
	own, err := data.Open(j.Data.Source, data.Options{Seed: j.Data.Seed})
	if err != nil || own.Tokens || own.Classes == 0 || own.Fields[0].Elements() == fieldsOf(m)[0].Elements() {
		return ""
	}
	with := ""
	if j.Model.Name == convnet {
		with = asImage(fieldsOf(m)[0].Shape[0], own)
	}
	if j.Model.Name != mlp {
		with += "--model mlp, which reads it, with "
	}
	return fmt.Sprintf("; give %s--set inputs=%d --set classes=%d", with, own.Fields[0].Elements(), own.Classes)
}

// asImage suggests settings with which a convnet reads each row as a square image of this many channels; "" if that
// does not fit.
func asImage(channels int, own *data.Set) string {
	elements := own.Fields[0].Elements()
	side := int(math.Round(math.Sqrt(float64(elements / channels))))
	if channels*side*side != elements {
		return ""
	}
	return fmt.Sprintf("--set image=%d,%d,%d --set classes=%d, or ", channels, side, side, own.Classes)
}

// fieldsOf returns the fields that a model reads.
func fieldsOf(m *model.Model) []data.Field {
	var fields []data.Field
	for _, in := range m.Inputs {
		f := data.Field{Name: in.Name, Shape: in.Shape, DType: data.DType(in.DType)}
		for _, r := range in.Ranges {
			f.Ranges = append(f.Ranges, data.Range(r))
		}
		fields = append(fields, f)
	}
	return fields
}

// synthetic makes data of the shape that a model reads.
func synthetic(m *model.Model) (data.Split, error) {
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	return data.Synthetic(4096, fieldsOf(m)), nil
}

// TrainingData opens the job's data, or makes samples of the model's shape if the job names none.
func TrainingData(j *job.Job, m *model.Model) (data.Split, error) {
	if j.Data.Source == "" {
		return synthetic(m)
	}
	set, err := OpenData(j, m)
	if err != nil {
		return nil, err
	}
	return set.Train, nil
}

// CheckTrainingData checks that a job's data can be read and fits its model.
func CheckTrainingData(j *job.Job) error {
	m, err := LoadModel(j)
	if err != nil {
		return err
	}
	_, err = TrainingData(j, m)
	return err
}
