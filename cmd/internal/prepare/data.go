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
			".csv file or a text"))
	}
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	var input model.Tensor
	for _, in := range m.Inputs {
		if in.Name == "input" {
			input = in
		}
	}
	o := data.Options{Seed: j.Seed}
	if input.DType == model.Int {
		if len(input.Shape) == 1 {
			o.Context = input.Shape[0]
		}
	} else {
		o.InputShape = input.Shape
	}
	set, err := data.Open(j.Data, o)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if set.Tokens != (input.DType == model.Int) {
		return nil, cli.BadInput(fmt.Errorf("model %s reads %s inputs, and %s has others; gpt and lstm need a text, mlp "+
			"and convnet images or tables", m.Name, input.DType, j.Data))
	}
	if j.EvalRows == job.Auto {
		j.EvalRows = 0
		if set.Tokens {
			j.EvalRows = textEvalRows
		}
	}
	last := m.Layers[len(m.Layers)-1]
	if at := m.Index(last.From[0]); at >= 0 {
		shape := m.Layers[at].Outputs[0].Shape
		if classes := shape[len(shape)-1]; classes < set.Classes {
			return nil, cli.BadInput(fmt.Errorf("model %s tells %d classes apart, %s has %d", m.Name, classes,
				j.Data, set.Classes))
		}
	}
	return set, nil
}

// synthetic is data of the shape that a model reads.
func synthetic(m *model.Model) (data.Split, error) {
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	var input, target model.Tensor
	for _, in := range m.Inputs {
		switch in.Name {
		case "input":
			input = in
		case "target":
			target = in
		}
	}
	last := m.Layers[len(m.Layers)-1]
	at := m.Index(last.From[0])
	if input.Name == "" || target.Name == "" || at < 0 {
		return nil, cli.BadInput(fmt.Errorf("model %s: it must read an input named \"input\" and a target named \"target\"",
			m.Name))
	}
	logits := m.Layers[at].Outputs[0].Shape
	return data.Synthetic(4096, input.Shape, target.Shape, input.DType == model.Int, logits[len(logits)-1]), nil
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
