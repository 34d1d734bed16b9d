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

// Step holds the settings of one update.
type Step struct {
	optim.Step
	Renewal stage.Renewal // what happens to the previous version of the weights
}

// Updater updates the weights of one stage.
type Updater interface {
	// Complete says that this replica has gathered the gradients of the next update. Later backwards gather the
	// gradients of the update after it.
	Complete() error
	// Norms returns the sum of squares of each gradient of the next update; see stage.Gradients.Norms.
	Norms() (engine.Tensor, error)
	// Statistics returns the buffers that replicas sum before an update; AverageStatistics divides the sums.
	Statistics() ([]stage.Vector, error)
	// AverageStatistics divides the stage's summed buffers by this number of replicas, if replicas have summed them.
	AverageStatistics(replicas int) error
	// Update makes the next version of the weights.
	Update(step Step) error
	// Confirm makes the last, tentative update final.
	Confirm() error
	// Undo takes the last, tentative update back. Weights, optimizer states and buffers return to their old values.
	// Micro-batches in flight have used the weights that are taken back, so they are thrown away; Undo returns how
	// many. The next Update uses the same gradients and is final.
	Undo() (thrown int, err error)
	// Apart returns the distance of a reference from the average of its pipelines, divided by the reference's largest
	// parameter. It is 0 for a stage that is not a reference.
	Apart() (float64, error)
	// Close frees what the Updater keeps.
	Close()
}

// Config holds the settings of Updaters.
type Config struct {
	Optimizer optim.Settings
	Averaging *plan.Elastic // only for elastic averaging
	Stage     int           // number of the stage, for errors
}

// makers holds, by the name of an Updater, the function that makes the Updaters of a worker's stages.
var makers = map[string]func(Config, []*stage.Stage) ([]Updater, error){
	Plain:     plainly,
	Deferred:  each(func(p *plain) Updater { return &deferred{plain: p} }),
	Tentative: each(func(p *plain) Updater { return &tentative{plain: p} }),
	Elastic:   newElastic,
}

// New makes the Updaters of a worker's stages, one for each. All these stages consist of the same layers. Usually there
// is one stage. For elastic averaging there is one for every pipeline and, after them, the reference. A single pipeline
// has no reference, and its Updater is a plain one.
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

// each returns a function that makes the Updater of a single stage.
func each(of func(*plain) Updater) func(Config, []*stage.Stage) ([]Updater, error) {
	return func(c Config, stages []*stage.Stage) ([]Updater, error) {
		if len(stages) != 1 {
			return nil, fmt.Errorf("update: %d models of stage %d; several are for elastic averaging", len(stages), c.Stage)
		}
		return []Updater{of(&plain{stage: stages[0], optimizer: c.Optimizer})}, nil
	}
}
