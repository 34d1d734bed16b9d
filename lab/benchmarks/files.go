// Package benchmarks makes BENCHMARKS.md from the results of millrace-lab in lab/results.
//
// In: the files of a folder, in the form of package record, and a template of questions and explanations. Out: the
// page. Each of its measured numbers is in a file, or is computed from numbers in files. A missing number is shown as
// "not measured". A number that was carried over without its single measurements has a mark. A file of another form is
// refused, and so is a template that asks for a benchmark that does not exist. The package measures nothing.
package benchmarks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/lab/p2p"
	"github.com/millrace-ml/millrace/lab/record"
	timed "github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/tight"
	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/lab/versus"
)

// Folder is the folder of results in the repository.
const Folder = "lab/results"

// readers read the files of each benchmark.
var readers = map[string]func(path string) (any, *record.Head, error){
	"peers":      reader(func(r *bench.PeersReport) *record.Head { return &r.Head }),
	"speedup":    reader(func(r *bench.Speedup) *record.Head { return &r.Head }),
	"prediction": reader(func(r *bench.Predictions) *record.Head { return &r.Head }),
	"tuner":      reader(func(r *bench.Tuner) *record.Head { return &r.Head }),
	"orders":     reader(func(r *bench.Orders) *record.Head { return &r.Head }),
	"memory":     reader(func(r *bench.Memory) *record.Head { return &r.Head }),
	"curves":     reader(func(r *curves.Report) *record.Head { return &r.Head }),
	"imported":   reader(func(r *bench.ImportedReport) *record.Head { return &r.Head }),
	"versus":     reader(func(r *versus.Results) *record.Head { return &r.Head }),
	"p2p":        reader(func(r *p2p.Results) *record.Head { return &r.Head }),
	"slow":       reader(func(r *slow.Results) *record.Head { return &r.Head }),
	"live":       reader(func(r *bench.Watched) *record.Head { return &r.Head }),
	"livepage":   reader(func(r *bench.LivePage) *record.Head { return &r.Head }),
	"quick":      reader(func(r *bench.Quick) *record.Head { return &r.Head }),
	"bound":      reader(func(r *tight.Results) *record.Head { return &r.Head }),
	"shapes":     reader(func(r *timed.Shapes) *record.Head { return &r.Head }),
	"ranks":      reader(func(r *ranks) *record.Head { return &r.Head }),
}

func reader[T any, P interface {
	*T
	record.Results
}](head func(P) *record.Head) func(string) (any, *record.Head, error) {
	return func(path string) (any, *record.Head, error) {
		r, err := record.Read[T, P](path)
		if err != nil {
			return nil, nil, err
		}
		return r, head(r), nil
	}
}

// ranks is the result of package run's test with many ranks.
type ranks struct {
	record.Head
	Deeper []ranksGrown `json:"deeper"` // more stages with 16 replicas
	Wider  []ranksGrown `json:"wider"`  // more replicas of 4 stages
	Longer []ranksGrown `json:"longer"` // more micro-batches per step
	// Steeper lists the quantities that grow faster than the number of ranks.
	Steeper []string `json:"faster_than_linear"`
}

type ranksGrown struct {
	Ranks        int     `json:"ranks"`
	Stages       int     `json:"stages"`
	MicroBatches int     `json:"micro_batches"`
	Seconds      float64 `json:"seconds"`
	SlotsSeconds float64 `json:"slots_seconds"`
	BytesEach    int     `json:"bytes_each"`
	Allocated    int     `json:"allocated"`
	ProgramBytes int     `json:"program_bytes"`
	SaidBytes    int     `json:"said_bytes"`
	Frames       int     `json:"frames"`
	Edges        int     `json:"edges"`
}

func (r *ranks) Kind() string { return "ranks" }

// Recount returns nil, because no number is computed from other ones.
func (r *ranks) Recount() error { return nil }

type file struct {
	name string // without .json
	head *record.Head
	is   any // the results, of the benchmark's own type
}

// files are all files of a folder, ordered by date.
type files []file

// read reads a folder. It skips files that name no benchmark.
func read(dir string) (all files, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("benchmarks: %w", err)
	}
	for _, path := range paths {
		kind, err := record.BenchOf(path)
		if err != nil {
			return nil, err
		}
		if kind == "" {
			continue
		}
		from := readers[kind]
		if from == nil {
			return nil, fmt.Errorf("benchmarks: %s: bench is %q, which is none of those that the page knows", path, kind)
		}
		is, head, err := from(path)
		if err != nil {
			return nil, err
		}
		all = append(all, file{strings.TrimSuffix(filepath.Base(path), ".json"), head, is})
	}
	slices.SortStableFunc(all, func(a, b file) int { return cmp.Compare(a.head.Machine.Date, b.head.Machine.Date) })
	return all, nil
}

// named returns the file with a name; nil, nil if there is none.
func named[T any](all files, name string) (*T, *record.Head) {
	for _, f := range all {
		if is, ok := f.is.(*T); ok && f.name == name {
			return is, f.head
		}
	}
	return nil, nil
}
