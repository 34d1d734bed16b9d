package family

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/schedule"
)

// Family is a kind of schedule. A file that registers one is all that a new
// family needs: tune and the command line enumerate the registry.
type Family struct {
	Name string
	Doc  string // one line, with its source
	// Policies are the weight policies that the order can keep; nil is Sync alone.
	Policies []schedule.Policy
	// Replications are how replicas of its stages may share the work; nil is both ways.
	Replications []schedule.Replication
	// Streaming: the order is for devices that compute and transfer at once
	// (BaPipe's asynchronous execution, §3.2.1), FPGA boards among them.
	Streaming bool
	// Beside: what the order gains is that collectives go on beside computations, which takes
	// somebody else than the workers' cores to carry them out.
	Beside bool
	// Chunks is how many virtual stages a worker holds: 0 and 1 are one, 2 is a V or two
	// directions, -1 is any number.
	Chunks int
	// Place is where the stages lie that the order takes on so many workers. chunks is the stages of each worker, where
	// the family lets them choose; nil is a stage for each worker.
	Place func(workers, chunks int) [][]int
	// Admits says why the family cannot schedule these settings, or nil.
	Admits func(schedule.Settings) error
	// Warmup is the depths K_i the family gives S stages for M micro-batches before
	// clamping; nil where the family has no such knob.
	Warmup func(stages, microBatches int) []int
	// General names the family that this one is a choice of depths or workers of: with others it is that one.
	// A family that takes any choice names itself; "" stands alone.
	General string
	// Whole: a minibatch is one micro-batch.
	Whole bool
	// Undivided: the whole model is one stage, on however many workers.
	Undivided bool
	// Alone: a micro-batch has gone through all stages, and back, before the next one begins: there is no pipelining.
	Alone bool
	// Deepest: every stage runs all forwards of a step first, so that depths grow with M.
	Deepest bool
	// Halves: backwards are split, and weight gradients put off.
	Halves bool
	// Generate writes the compute-only Program.
	Generate func(schedule.Settings) (*schedule.Program, error)
}

var families = registry.New[Family]("schedule")

// Register adds a family; a name taken twice is a bug.
func Register(f Family) { families.Add(f.Name, f) }

// All lists the registry by name.
func All() []Family { return families.All() }

// Names is what they are called.
func Names() []string { return families.Names() }

// depthsOf is the depths K_i that a family of this package gives.
func depthsOf(family string, stages, microBatches int) []int {
	f, err := families.Find(family)
	if err != nil {
		panic(err)
	}
	return f.Warmup(stages, microBatches)
}

// aliases are the names that papers and other systems have for families of ours.
var aliases = map[string]string{
	"gpipe":    "afab", // Huang et al., NeurIPS 2019
	"p_a":      "1f1b", // DAPPLE §5.3
	"p_b":      "pb",
	"sno":      "1f1b", // BaPipe Table II
	"1f1b-sno": "1f1b", "1f1b-so": "so",
	"pipedream": "1f1b-rr", "avgpipe": "elastic", "zb1p": "zb-h1", "zb2p": "zb-h2", "zbv": "zb-v",
}

// Aliases are the other names that a family is found by, sorted.
func Aliases(name string) []string {
	var also []string
	for alias, ours := range aliases {
		if ours == name {
			also = append(also, alias)
		}
	}
	slices.Sort(also)
	return also
}

// System is a training system that others published, as a family and a weight policy.
type System struct {
	Name    string
	Family  string
	Weights schedule.Policy
}

// Systems are the pipelines that AvgPipe is compared with (PPoPP 2023, §7.1), in the paper's order.
func Systems() []System {
	return []System{
		{"GPipe", "afab", schedule.Sync}, {"DAPPLE", "1f1b", schedule.Sync},
		{"PipeDream", "1f1b-rr", schedule.Stash}, {"PipeDream-2BW", "1f1b-rr", schedule.DoubleBuffered},
	}
}

// Lookup finds a family by name, or by the name that its paper gives it, in any case.
func Lookup(name string) (Family, error) {
	f, err := Named(name)
	if err != nil {
		return f, fmt.Errorf("schedule: %w", err)
	}
	return f, nil
}

// Named is Lookup for whoever says in front of an error what it is of.
func Named(name string) (Family, error) {
	lower := strings.ToLower(name)
	f, err := families.Find(cmp.Or(aliases[lower], lower))
	if err != nil {
		_, err = families.Find(name) // names what was asked for
	}
	return f, err
}

// Generate writes a family's Program for these settings.
func Generate(name string, s schedule.Settings) (*schedule.Program, error) {
	f, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	if s, err = s.Checked(); err != nil {
		return nil, fmt.Errorf("schedule: %s: %w", name, err)
	}
	if s.Weights == "" {
		s.Weights = f.DefaultPolicy()
	}
	if err := f.admits(s); err != nil {
		return nil, fmt.Errorf("schedule: %s: %w", name, err)
	}
	p, err := f.Generate(s)
	if err != nil {
		return nil, fmt.Errorf("schedule: %s: %w", name, err)
	}
	p.Name = f.Name
	return p, nil
}

// Keeps refuses a weight policy that the order cannot keep, and says what would go together.
func (f Family) Keeps(w schedule.Policy) error {
	if f.AdmitsPolicy(w) {
		return nil
	}
	text := fmt.Sprintf("weight policy %q: this order keeps %s", w, inWords(f.policies()))
	if !w.Known() {
		return fmt.Errorf("%s; there are %s", text, inWords(schedule.Policies()))
	}
	var others []string
	for _, other := range All() {
		if other.AdmitsPolicy(w) {
			others = append(others, other.Name)
		}
	}
	return fmt.Errorf("%s; %s is kept by %s", text, w, inWords(others))
}

// inWords lists choices in words.
func inWords[T ~string](all []T) string {
	text := ""
	for i, one := range all {
		switch {
		case i > 0 && i == len(all)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += string(one)
	}
	return text
}

// admits refuses policies and replications that the family does not list, and then what it
// refuses itself.
func (f Family) admits(s schedule.Settings) error {
	if err := f.Keeps(s.Weights); err != nil {
		return err
	}
	replicated := slices.ContainsFunc(s.Placement, func(on []int) bool { return len(on) > 1 })
	if replicated && f.Replications != nil && !slices.Contains(f.Replications, s.Replication) {
		return fmt.Errorf("replication %q; this order admits %q", s.Replication, f.Replications)
	}
	if s.Staleness != nil && !s.Weights.Served() {
		return fmt.Errorf("staleness %d; workers are ahead of others under schedule asp alone", *s.Staleness)
	}
	if s.Elastic != nil && !s.Weights.Averages() {
		return fmt.Errorf("%d pipelines side by side; that is for schedule elastic", s.Elastic.Pipelines)
	}
	return f.Admits(s)
}

func (f Family) policies() []schedule.Policy {
	if f.Policies == nil {
		return []schedule.Policy{schedule.Sync}
	}
	return f.Policies
}

// DefaultPolicy is the weight policy of a Program of the family where none is named.
func (f Family) DefaultPolicy() schedule.Policy { return f.policies()[0] }

// AdmitsPolicy says whether a Program of the family may carry a weight policy.
func (f Family) AdmitsPolicy(w schedule.Policy) bool { return slices.Contains(f.policies(), w) }

// IsGeneral says whether the family is a general one, of which others are choices of depths or workers.
func (f Family) IsGeneral() bool { return f.General == f.Name }

// Asynchronous says whether no pipeline of the family's ever flushes.
func (f Family) Asynchronous() bool {
	return !slices.ContainsFunc(f.policies(), schedule.Policy.Flushes)
}

// Placement is where the family's stages lie on so many workers: one stage on each, or as the
// order needs. chunks is how many each worker holds, where that can be chosen (Chunks < 0).
func (f Family) Placement(workers, chunks int) [][]int {
	if f.Place == nil {
		return schedule.Replicated(workers, 1)
	}
	return f.Place(workers, chunks)
}

// placed refuses settings whose stages do not lie as the family needs. It also refuses fewer micro-batches than one
// for each worker, where so many are needed.
func placed(s schedule.Settings, want [][]int, how string) error {
	if len(s.Placement) != len(want) {
		return fmt.Errorf("%d virtual stages; %s", len(s.Placement), how)
	}
	for i, on := range s.Placement {
		if len(on) != len(want[i]) {
			return fmt.Errorf("stage %d is on workers %v; %s", i, on, how)
		}
		for r := range on {
			if on[r] != want[i][r] {
				return fmt.Errorf("stage %d is on workers %v; %s", i, on, how)
			}
		}
	}
	if s.Warmup != nil {
		return fmt.Errorf("warm-up depths %v; this order has its own", s.Warmup)
	}
	return nil
}
