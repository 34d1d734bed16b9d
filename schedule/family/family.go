package family

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/schedule"
)

// Family is a kind of schedule. A new family needs only a file that registers it: tune and the command line enumerate
// the registry.
type Family struct {
	Name string
	Doc  string // one line, with the source of the order
	// Policies are the weight policies that the order can keep; nil means only Sync.
	Policies []schedule.Policy
	// Replications are the ways in which replicas of a stage may share the work; nil means both.
	Replications []schedule.Replication
	// Streaming says that the order is for devices that compute and transfer at once, such as FPGA boards. BaPipe calls
	// this asynchronous execution (§3.2.1).
	Streaming bool
	// Beside says that the order is faster only if collectives run during computations, on hardware other than the
	// workers' cores.
	Beside bool
	// Chunks is how many virtual stages a worker holds: 0 and 1 mean one, 2 means a V or two directions, -1 any number.
	Chunks int
	// Place returns the placement of the stages on this many workers. `chunks` is the number of stages of each worker, if
	// the family lets the caller choose. A nil Place means one stage for each worker.
	Place func(workers, chunks int) [][]int
	// Admits says why the family cannot schedule these settings, or nil.
	Admits func(schedule.Settings) error
	// Warmup returns the depths K_i with which a search cuts the model into stages, before they are limited to
	// microBatches. It is nil if the family has no such depths.
	Warmup func(stages, microBatches int) []int
	// Own returns the family's default depths, if the family takes any depths. A search cuts the model into stages with
	// these depths. Own is nil if Warmup is set, or if the family has no depths to choose.
	Own func(stages, microBatches int) []int
	// General names the family of which this one is a special case, with certain depths or workers. The general family
	// names itself; "" means that there is none.
	General string
	// Whole says that a minibatch is one micro-batch.
	Whole bool
	// Undivided says that the whole model is one stage, on any number of workers.
	Undivided bool
	// Alone says that there is no pipelining: a micro-batch goes through all stages and back before the next one
	// begins.
	Alone bool
	// Deepest says that every stage runs all forwards of a step first. So depths grow with the number of micro-batches.
	Deepest bool
	// Halves says that backwards are split and weight gradients delayed.
	Halves bool
	// Least is the number of minibatches of the family's shortest Program; 0 means 1. Only a Program from outside needs
	// more (RegisterProgram).
	Least int
	// Each is the number of minibatches by a multiple of which longer Programs exceed Least; 0 means 1.
	Each int
	// Generate generates the compute-only Program.
	Generate func(schedule.Settings) (*schedule.Program, error)
}

// Trains reports whether the family has a Program of this many minibatches.
func (f Family) Trains(minibatches int) bool {
	least := max(1, f.Least)
	return minibatches >= least && (minibatches-least)%max(1, f.Each) == 0
}

// Longest returns the most minibatches, up to a limit, that a Program of the family has. If all its Programs have more,
// Longest returns those of the shortest.
func (f Family) Longest(limit int) int {
	least, each := max(1, f.Least), max(1, f.Each)
	return least + max(0, limit-least)/each*each
}

// Divided divides minibatches among as few Programs as possible, each of at most `longest`, which the family trains. It
// returns the number of minibatches of the first Program, and that of all Programs. Both are 0 if the family's
// Programs cannot train this number together.
func (f Family) Divided(minibatches, longest int) (first, programs int) {
	least, each := max(1, f.Least), max(1, f.Each)
	few := (minibatches-1)/longest + 1
	for n := few; n < few+each && n <= minibatches/least; n++ {
		if (minibatches-n*least)%each == 0 {
			return min(longest, minibatches-(n-1)*least), n
		}
	}
	return 0, 0
}

// InARow says which numbers of minibatches the family's Programs have.
func (f Family) InARow() string {
	switch least, each := max(1, f.Least), max(1, f.Each); {
	case each == 1:
		return fmt.Sprintf("%d or more", least)
	case each == least:
		return fmt.Sprintf("multiples of %d", each)
	default:
		return fmt.Sprintf("%d, or more by a multiple of %d", least, each)
	}
}

var families = registry.New[Family]("schedule")

// Register adds a family. Registering a name twice is a bug.
func Register(f Family) { families.Add(f.Name, f) }

// All returns all families, sorted by name.
func All() []Family { return families.All() }

// Names returns the names of all families.
func Names() []string { return families.Names() }

// depthsOf returns the depths K_i of a family of this package.
func depthsOf(family string, stages, microBatches int) []int {
	f, err := families.Find(family)
	if err != nil {
		panic(err)
	}
	return f.Warmup(stages, microBatches)
}

// aliases maps names in papers and other systems to our families.
var aliases = map[string]string{
	"gpipe":    "afab", // Huang et al., NeurIPS 2019
	"p_a":      "1f1b", // DAPPLE §5.3
	"p_b":      "pb",
	"sno":      "1f1b", // BaPipe Table II
	"1f1b-sno": "1f1b", "1f1b-so": "so",
	"pipedream": "1f1b-rr", "avgpipe": "elastic", "zb1p": "zb-h1", "zb2p": "zb-h2", "zbv": "zb-v",
}

// Aliases returns the other names of a family, sorted.
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

// System is a published training system, described by a family and a weight policy.
type System struct {
	Name    string
	Family  string
	Weights schedule.Policy
}

// Systems lists the pipeline systems with which AvgPipe is compared (PPoPP 2023, §7.1), in the paper's order.
func Systems() []System {
	return []System{
		{"GPipe", "afab", schedule.Sync}, {"DAPPLE", "1f1b", schedule.Sync},
		{"PipeDream", "1f1b-rr", schedule.Stash}, {"PipeDream-2BW", "1f1b-rr", schedule.DoubleBuffered},
	}
}

// Lookup finds a family by its name or alias, ignoring case.
func Lookup(name string) (Family, error) {
	f, err := Named(name)
	if err != nil {
		return f, fmt.Errorf("schedule: %w", err)
	}
	return f, nil
}

// Named is Lookup for callers that put their own text in front of the error.
func Named(name string) (Family, error) {
	lower := strings.ToLower(name)
	f, err := families.Find(cmp.Or(aliases[lower], lower))
	if err != nil {
		return families.Find(name) // the name as given: a registered name may have upper case, and an error quotes it
	}
	return f, nil
}

// Generate returns a family's Program for these settings.
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

// Keeps refuses a weight policy that the order cannot keep, and names combinations that are possible.
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

// inWords lists choices in words, for an error.
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

// admits refuses policies and replications that the family does not list, and settings that its Admits refuses. It also
// refuses a staleness or elastic pipelines under a policy that has none.
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

// DefaultPolicy returns the weight policy that the family uses if none is named.
func (f Family) DefaultPolicy() schedule.Policy { return f.policies()[0] }

// AdmitsPolicy reports whether a Program of the family may have a weight policy.
func (f Family) AdmitsPolicy(w schedule.Policy) bool { return slices.Contains(f.policies(), w) }

// IsGeneral reports whether other families are special cases of this one, with certain depths or workers.
func (f Family) IsGeneral() bool { return f.General == f.Name }

// Asynchronous reports whether pipelines of the family never flush.
func (f Family) Asynchronous() bool {
	return !slices.ContainsFunc(f.policies(), schedule.Policy.Flushes)
}

// Placement returns the workers of each stage, if the family runs on this many workers. Unless the family has a Place,
// each worker has one stage. `chunks` is the number of stages of each worker, if the family lets the caller choose it
// (Chunks < 0).
func (f Family) Placement(workers, chunks int) [][]int {
	if f.Place == nil {
		return schedule.Replicated(workers, 1)
	}
	return f.Place(workers, chunks)
}

// placed refuses settings whose placement is not `want`, which the family needs. It also refuses depths, because these
// orders have their own.
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
