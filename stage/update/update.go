package update

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
)

// The names of the Updaters.
const (
	Plain     = "plain"
	Deferred  = "deferred"
	Tentative = "tentative"
	Elastic   = "elastic"
)

// Step is the circumstances of one update.
type Step struct {
	optim.Step
	Renewal stage.Renewal // what becomes of the version before
}

// Updater updates the weights of one stage.
type Updater interface {
	// Complete says that the next update's gradients are gathered, on this replica. What backwards gather from
	// here on is another update's.
	Complete() error
	// Norms is the squares of the next update's gradients, as the stage's Norms says.
	Norms() (engine.Tensor, error)
	// Statistics is the buffers for the replicas to sum in front of an update; AverageStatistics divides the
	// sums.
	Statistics() ([]stage.Vector, error)
	// AverageStatistics has the stage go on with the mean of what so many replicas summed, if they summed.
	AverageStatistics(replicas int) error
	// Update makes the next version of the weights.
	Update(step Step) error
	// Confirm has the last update, a tentative one, stand.
	Confirm() error
	// Undo takes the last update, a tentative one, back: weights, optimizer states and buffers are what they
	// were, and the next Update goes by the same gradients and stands. Micro-batches under way, which went
	// forward with the weights taken back, are thrown away; it returns how many.
	Undo() (thrown int, err error)
	// Apart is how far a reference is from the average of its pipelines, as a part of its largest parameter;
	// 0 of a stage that is no reference.
	Apart() (float64, error)
	// Close frees what the Updater keeps.
	Close()
}

// Config is what Updaters are made of.
type Config struct {
	Optimizer optim.Settings
	Averaging *plan.Elastic // of elastic averaging alone
	Stage     int           // number, which errors name
}

// makers is the Updaters of the stages given.
var makers = map[string]func(Config, []*stage.Stage) ([]Updater, error){
	Plain:     plainly,
	Deferred:  each(func(p *plain) Updater { return &deferred{plain: p} }),
	Tentative: each(func(p *plain) Updater { return &tentative{plain: p} }),
	Elastic:   newElastic,
}

// New makes the Updater of each of a worker's stages of the same layers: one stage, or of elastic averaging
// one for every pipeline and behind them the reference. One pipeline has no reference, and is updated
// plainly.
func New(name string, c Config, stages []*stage.Stage) ([]Updater, error) {
	maker := makers[name]
	if maker == nil {
		var names []string
		for n := range makers {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("update: there is no updater %q; there are %s", name, strings.Join(names, ", "))
	}
	return maker(c, stages)
}

// plainly makes the plain Updater of one stage.
func plainly(c Config, stages []*stage.Stage) ([]Updater, error) {
	return each(func(p *plain) Updater { return p })(c, stages)
}

// each makes an Updater of one stage.
func each(of func(*plain) Updater) func(Config, []*stage.Stage) ([]Updater, error) {
	return func(c Config, stages []*stage.Stage) ([]Updater, error) {
		if len(stages) != 1 {
			return nil, fmt.Errorf("update: %d models of stage %d; several are for elastic averaging", len(stages), c.Stage)
		}
		return []Updater{of(&plain{stage: stages[0], optimizer: c.Optimizer})}, nil
	}
}
