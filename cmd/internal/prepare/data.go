package prepare

import (
	"fmt"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// OpenEngine opens libtorch. That it is missing is for the user to mend, like any input.
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

// textEvalRows is how many windows of a text an evaluation takes unless the job says: all of
// a few megabytes' tenth would take longer than the training between two evaluations.
const textEvalRows = 256

// OpenData opens the job's data and sees that the model can read it.
func OpenData(j *job.Job, m *model.Model) (*data.Set, error) {
	if j.Data == "" {
		return nil, cli.BadInput(fmt.Errorf("no data is named; give --data digits, fashion-mnist, a folder of IDX files, a " +
			".csv, .npz or .safetensors file, or a text"))
	}
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	set, err := data.Open(j.Data, data.Options{Seed: j.Seed, Fields: fieldsOf(m), Target: m.Target(),
		TrainPart: j.TrainPart, Tokenizer: j.Tokenizer})
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if j.EvalRows == job.Auto {
		j.EvalRows = 0
		if set.Tokens {
			j.EvalRows = textEvalRows
		}
	}
	if classes := classesOf(m); classes > 0 && classes < set.Classes {
		remedy := ""
		if j.Tokenizer != "" {
			remedy = fmt.Sprintf("; a built-in model takes --set vocabulary=%d", set.Classes)
		}
		return nil, cli.BadInput(fmt.Errorf("model %s tells %d classes apart, %s has %d%s", m.Name, classes, j.Data,
			set.Classes, remedy))
	}
	return set, nil
}

// fieldsOf is what a model reads.
func fieldsOf(m *model.Model) []data.Field {
	var fields []data.Field
	for _, in := range m.Inputs {
		fields = append(fields, data.Field{Name: in.Name, Shape: in.Shape, DType: data.DType(in.DType)})
	}
	return fields
}

// classesOf is how many classes a model tells apart, where its last layer says so; or 0.
func classesOf(m *model.Model) int {
	last := m.Layers[len(m.Layers)-1]
	if at := m.Index(last.From[0]); last.Kind == "cross_entropy" && at >= 0 {
		shape := m.Layers[at].Outputs[0].Shape
		return shape[len(shape)-1]
	}
	return 0
}

// always is a bound of whole numbers that a model of which nothing is known can take: an index, a class or a
// flag may be 0 or 1.
const always = 2

// synthetic is data of the shape that a model reads.
func synthetic(m *model.Model) (data.Split, error) {
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	below := classesOf(m)
	if below == 0 {
		below = always
	}
	return data.Synthetic(4096, fieldsOf(m), below), nil
}

// TrainingData is the job's, or samples of its model's shape where it names none.
func TrainingData(j *job.Job, m *model.Model) (data.Split, error) {
	if j.Data == "" {
		return synthetic(m)
	}
	set, err := OpenData(j, m)
	if err != nil {
		return nil, err
	}
	return set.Train, nil
}

// CheckTrainingData says whether a job's data can be read and suits its model.
func CheckTrainingData(j *job.Job) error {
	m, err := LoadModel(j)
	if err != nil {
		return err
	}
	_, err = TrainingData(j, m)
	return err
}
