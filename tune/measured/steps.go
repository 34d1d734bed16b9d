package measured

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/roles"
	"github.com/millrace-ml/millrace/tune/shape"
)

// Needed lists the required columns of a CSV of steps, and Optional the optional ones.
var (
	Needed = []string{"layers", "hidden", "heads", "seq_len", "vocab", "micro_batch", "global_batch", "precision",
		"iteration_s"}
	Optional = []string{"tp", "pp", "dp", "schedule", "virtual_stages_per_device", "recompute", "sequence_parallel",
		"shard", "kv_heads", "ffn_hidden", "dropout", "tied", "id"}
)

// Set holds measurements of one kind.
type Set struct {
	Observations []calibrate.Observation
	Notes        []string // what was ignored, and why
	// Candidates returns further measurements, for the cluster that a fit found.
	Candidates func(fitted *cluster.Cluster) []calibrate.Candidate
}

// mostRows limits the rows that are read, because each is predicted hundreds of times for every fold.
const mostRows = 500

// mostWhole is the largest number allowed in a row.
const mostWhole = 1 << 24

// run is a row: what was trained, how, and the time of a step.
type run struct {
	of    Transformer
	model *model.Model
	shape shape.Shape
	stepS float64
	name  string
}

// Steps reads a CSV of step times.
func Steps(file string, text []byte, c *cluster.Cluster) (*Set, error) {
	r := csv.NewReader(bytes.NewReader(document.Unmarked(text)))
	r.Comment, r.TrimLeadingSpace = '#', true
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("measured: %s is empty; its first line names columns: %s", file, strings.Join(Needed, ", "))
	} else if err != nil {
		return nil, fmt.Errorf("measured: %s: %w", file, err)
	}
	out := &Set{}
	var unread []string
	for i, name := range head {
		head[i] = strings.TrimSpace(name)
		switch name = head[i]; {
		case slices.Contains(head[:i], name):
			return nil, fmt.Errorf("measured: %s: column %q stands there twice; leave one out", file, name)
		case !slices.Contains(Needed, name) && !slices.Contains(Optional, name):
			unread = append(unread, name)
		}
	}
	if len(unread) > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("columns of %s that are not read: %s", file, strings.Join(unread, ", ")))
	}
	for _, name := range Needed {
		if !slices.Contains(head, name) {
			return nil, fmt.Errorf("measured: %s has no column %s; it needs %s, and may have %s", file, name,
				strings.Join(Needed, ", "), strings.Join(Optional, ", "))
		}
	}
	var runs []run
	built := map[Transformer]*model.Model{}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("measured: %s: %w", file, err)
		}
		line, _ := r.FieldPos(0)
		row := row{where: fmt.Sprintf("measured: %s, line %d", file, line), cells: map[string]string{}}
		for i, cell := range cells {
			row.cells[head[i]] = strings.TrimSpace(cell)
		}
		one, err := row.run(built, c)
		if err != nil {
			return nil, err
		}
		if one.name = row.cells["id"]; one.name == "" {
			one.name = fmt.Sprintf("line %d", line)
		}
		if runs = append(runs, one); len(runs) > mostRows {
			return nil, fmt.Errorf("measured: %s has more than %d rows; give fewer, of layouts that differ", file, mostRows)
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("measured: %s has no row; give one for each run that was measured", file)
	}
	for _, one := range runs {
		out.Observations = append(out.Observations, calibrate.Observation{Name: file + ": " + one.name,
			Group: one.layout(), Measured: one.stepS, Predict: one.predict})
	}
	out.Candidates = func(c *cluster.Cluster) []calibrate.Candidate { return candidates(runs, c) }
	return out, nil
}

// predict returns the step of a run on a cluster, in seconds.
func (r run) predict(c *cluster.Cluster) (float64, error) {
	p, err := shape.Predict(r.model, c, r.shape)
	if err != nil {
		return 0, err
	}
	return p.StepS, nil
}

// layout returns a key that is equal for runs that differ only in the samples of a step.
func (r run) layout() string {
	s := r.shape
	s.Batch = 0
	return fmt.Sprintf("%+v %+v", r.of, s)
}

// row is a line of a CSV, by column.
type row struct {
	where string
	cells map[string]string
}

// wrong returns the error for the cell of a column in this row. `want` says what would be right.
func (r row) wrong(column, want string) error {
	return fmt.Errorf("%s: %s is %q; give %s", r.where, column, r.cells[column], want)
}

// whole sets *to to the whole number in a column, or to `usual` if the cell is empty.
func (r row) whole(to *int, column string, least, usual int) error {
	if r.cells[column] == "" && usual >= 0 {
		*to = usual
		return nil
	}
	n, err := strconv.Atoi(r.cells[column])
	if err != nil || n < least || n > mostWhole {
		return r.wrong(column, fmt.Sprintf("a whole number from %d to %d", least, mostWhole))
	}
	*to = n
	return nil
}

// truth sets *to according to the yes or no in a column, or to `usual` if the cell is empty.
func (r row) truth(to *bool, column string, usual bool) error {
	switch strings.ToLower(r.cells[column]) {
	case "":
		*to = usual
	case "yes", "true", "1":
		*to = true
	case "no", "false", "0":
		*to = false
	default:
		return r.wrong(column, "yes or no")
	}
	return nil
}

// word sets *to to the word in a column, which must be one of `of`, or to `usual` if the cell is empty.
func (r row) word(to *string, column, usual string, of []string) error {
	if *to = r.cells[column]; *to == "" {
		*to = usual
	}
	if !slices.Contains(of, *to) {
		return fmt.Errorf("%s: %s is %q; %s", r.where, column, *to, registry.Instead(*to, of))
	}
	return nil
}

// run reads a row. The `usual` values in it are the defaults of empty cells; -1 means that a cell must not be empty.
func (r row) run(built map[Transformer]*model.Model, c *cluster.Cluster) (one run, err error) {
	t, s := &one.of, &one.shape
	s.States = 2
	for _, n := range []struct {
		to           *int
		column       string
		least, usual int
	}{{&t.Layers, "layers", 1, -1}, {&t.Hidden, "hidden", 1, -1}, {&t.Heads, "heads", 1, -1},
		{&t.Positions, "seq_len", 1, -1}, {&t.Vocabulary, "vocab", 1, -1}, {&t.KV, "kv_heads", 1, 0},
		{&t.FFN, "ffn_hidden", 1, 0}, {&s.MicroBatch, "micro_batch", 1, -1}, {&s.Batch, "global_batch", 1, -1},
		{&s.Tensor, "tp", 1, 1}, {&s.Stages, "pp", 1, 1}, {&s.Replicas, "dp", 1, 1},
		{&s.Chunks, "virtual_stages_per_device", 1, 1}} {
		if err := r.whole(n.to, n.column, n.least, n.usual); err != nil {
			return one, err
		}
	}
	if (t.KV == 0) != (t.FFN == 0) {
		return one, fmt.Errorf("%s: kv_heads is %q and ffn_hidden is %q; give both, of a block like Llama's, or neither",
			r.where, r.cells["kv_heads"], r.cells["ffn_hidden"])
	}
	for _, b := range []struct {
		to     *bool
		column string
		usual  bool
	}{{&s.SequenceParallel, "sequence_parallel", false}, {&t.Dropout, "dropout", false}, {&t.Tied, "tied", t.FFN == 0}} {
		if err := r.truth(b.to, b.column, b.usual); err != nil {
			return one, err
		}
	}
	usual := roles.Pipelines().Name
	if s.Chunks > 1 {
		usual = roles.Interleaving().Name
	}
	for _, w := range []struct {
		to            *string
		column, usual string
		of            []string
	}{{&s.Recompute, "recompute", "none", shape.Recomputes}, {&s.Shard, "shard", "none", shape.Shards},
		{&s.Precision, "precision", "", cluster.Precisions}} {
		if err := r.word(w.to, w.column, w.usual, w.of); err != nil {
			return one, err
		}
	}
	if s.Schedule = r.cells["schedule"]; s.Schedule == "" {
		s.Schedule = usual
	}
	f, err := family.Named(s.Schedule)
	if err != nil {
		return one, fmt.Errorf("%s: schedule: %w", r.where, err)
	}
	s.Schedule = f.Name
	one.stepS, err = strconv.ParseFloat(r.cells["iteration_s"], 64)
	if err != nil || !(one.stepS > 0) || math.IsInf(one.stepS, 1) {
		return one, r.wrong("iteration_s", "seconds of a step, over 0")
	}
	if one.model = built[*t]; one.model == nil {
		if one.model, err = t.Build(); err != nil {
			return one, fmt.Errorf("%s: %w", r.where, err)
		}
		built[*t] = one.model
	}
	if _, err := shape.Predict(one.model, c, *s); err != nil {
		return one, fmt.Errorf("%s: %w", r.where, err)
	}
	return one, nil
}
