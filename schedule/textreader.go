package schedule

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/plan"
)

// ParseText reads the text form. An accepted Program still has to pass check.Check. Errors name the line.
func ParseText(r io.Reader) (*Program, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 2*MaxFile)
	t := textReader{p: &Program{}, given: map[string]int{}}
	for in.Scan() {
		t.line++
		if err := t.read(in.Text()); err != nil {
			return nil, fmt.Errorf("schedule: program text, line %d: %w", t.line, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("schedule: program text, line %d: %w", t.line+1, err)
	}
	if t.line == 0 {
		return nil, fmt.Errorf("schedule: program text is empty; its first line is %q", TextHeader)
	}
	if err := t.p.complete(); err != nil {
		return nil, fmt.Errorf("schedule: program text: %w", err)
	}
	return t.p, nil
}

// complete sets fields that a file may leave out, and refuses a file without the required ones.
func (p *Program) complete() error {
	switch {
	case p.Workers < 1 || p.Stages < 1:
		return fmt.Errorf("it names no workers or no stages; it needs the lines \"workers N\" and \"stages N\"")
	case p.Workers > MaxWorkers || p.Stages > MaxStage:
		return fmt.Errorf("it has %d workers and %d stages; there can be %d and %d", p.Workers, p.Stages, MaxWorkers,
			MaxStage)
	}
	p.Weights = cmp.Or(p.Weights, Sync)
	for pl, stages := range p.Placement {
		if len(stages) != p.Stages {
			return fmt.Errorf("pipeline %d places %d of %d stages; give every stage a line \"place p%d/STAGE: "+
				"WORKERS\"", pl, len(stages), p.Stages, pl)
		}
	}
	if p.Recompute == nil {
		p.Recompute = make([]plan.Recompute, p.Stages)
	}
	return nil
}

type textReader struct {
	p     *Program
	line  int
	part  *Part          // the part whose lists are being read
	given map[string]int // the line of each setting
	count int            // instructions read so far
}

func (t *textReader) read(line string) error {
	if t.line == 1 {
		if line != TextHeader {
			return fmt.Errorf("it begins %q; this millrace reads %q", clip(line), TextHeader)
		}
		return nil
	}
	if value, named := strings.CutPrefix(strings.TrimSpace(line), "name "); named {
		if value = strings.TrimSpace(value); strings.HasPrefix(value, `"`) {
			return t.quotedName(value)
		}
	}
	line = TextLine(line)
	if line == "" {
		return nil
	}
	if t.part != nil && line[0] >= '0' && line[0] <= '9' {
		return t.list(line)
	}
	key, value, _ := strings.Cut(line, " ")
	return t.setting(key, strings.TrimSpace(value))
}

// TextLine returns the content of a line of the text form, without its comment.
func TextLine(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return strings.TrimSpace(line)
}

// quotedName reads a name in quotes, which may contain characters that a line cannot have otherwise.
func (t *textReader) quotedName(value string) error {
	quoted, err := strconv.QuotedPrefix(value)
	if err != nil || TextLine(value[len(quoted):]) != "" {
		return fmt.Errorf("name %s; what begins with a quote is a name in quotes, and nothing else", clip(value))
	}
	name, _ := strconv.Unquote(quoted) // a quoted prefix has no error
	return t.setting("name", name)
}

func (t *textReader) setting(key, value string) error {
	p := t.p
	if before, twice := t.given[key]; twice && key != "place" && key != "tied" {
		return fmt.Errorf("%s stands in line %d already; give it once", clip(key), before)
	}
	t.given[key] = t.line
	if err := t.sized(key); err != nil {
		return err
	}
	count := func(to *int, limit int) error {
		n, err := number(value, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		*to = n
		return nil
	}
	switch key {
	case "name":
		p.Name = value
	case "stages":
		return count(&p.Stages, MaxStage)
	case "workers":
		return count(&p.Workers, MaxWorkers)
	case "micro_batches":
		return count(&p.MicroBatches, MaxMicro)
	case "period":
		return count(&p.Period, MaxMicro)
	case "repeat":
		return count(&p.Repeat, MaxMicro)
	case "weights":
		p.Weights = Policy(value)
	case "replication":
		p.Replication = Replication(value)
	case "lowered", "clip", "paired", "defer_updates", "post_validate", "in_order":
		if value != "true" && value != "false" {
			return fmt.Errorf("%s is %q; it is true or false", key, clip(value))
		}
		*map[string]*bool{"lowered": &p.Lowered, "clip": &p.Clip, "paired": &p.Paired,
			"defer_updates": &p.DeferUpdates, "post_validate": &p.PostValidate,
			"in_order": &p.InOrder}[key] = value == "true"
	case "staleness":
		p.Staleness = new(int)
		return count(p.Staleness, MaxMicro)
	case "place":
		return t.place(value)
	case "recompute":
		var err error
		if p.Recompute, err = recomputed(value, p.Stages); err != nil {
			return fmt.Errorf("recompute: %w", err)
		}
	case "elastic":
		var err error
		if p.Elastic, err = readElastic(value); err != nil {
			return fmt.Errorf("elastic: %w", err)
		}
	case "tied":
		group, err := fields(value, p.Stages-1)
		if err != nil {
			return fmt.Errorf("tied: %w", err)
		}
		p.Tied = append(p.Tied, group)
	case "prologue":
		t.part, p.Prologue = &p.Prologue, make(Part, p.Workers)
	case "body":
		t.part, p.Body = &p.Body, make(Part, p.Workers)
	case "epilogue":
		t.part, p.Epilogue = &p.Epilogue, make(Part, p.Workers)
	default:
		return fmt.Errorf("unknown setting %q; settings are name stages workers micro_batches period repeat "+
			"weights replication lowered elastic clip paired defer_updates post_validate staleness in_order place "+
			"recompute tied, then prologue, body, epilogue", clip(key))
	}
	return nil
}

// sized refuses a setting that depends on a number of stages or workers that has not been given yet.
func (t *textReader) sized(key string) error {
	switch key {
	case "tied", "recompute", "place":
		if t.p.Stages == 0 {
			return fmt.Errorf("%s stands in front of the line \"stages N\", which it needs", key)
		}
	}
	switch key {
	case "place", "prologue", "body", "epilogue":
		if t.p.Workers == 0 {
			return fmt.Errorf("%s stands in front of the line \"workers N\", which it needs", key)
		}
	}
	return nil
}

// place reads "p0/2: 4 5": stage 2 of pipeline 0 is on workers 4 and 5.
func (t *textReader) place(value string) error {
	where, on, ok := strings.Cut(value, ":")
	pl, stage, slash := strings.Cut(strings.TrimPrefix(where, "p"), "/")
	pipeline, err1 := number(pl, MaxPipeline)
	s, err2 := number(stage, t.p.Stages-1)
	if !ok || !slash || err1 != nil || err2 != nil {
		return fmt.Errorf("place %q; the form is \"place p0/2: 4 5\", with a stage below %d", clip(value), t.p.Stages)
	}
	if pipeline > len(t.p.Placement) || pipeline == len(t.p.Placement) && s != 0 || pipeline < len(t.p.Placement) &&
		s != len(t.p.Placement[pipeline]) {
		return fmt.Errorf("place p%d/%d is out of order; pipelines and their stages are placed one after the other "+
			"from 0", pipeline, s)
	}
	workers, err := fields(on, t.p.Workers-1)
	if err != nil {
		return fmt.Errorf("place p%d/%d: %w", pipeline, s, err)
	}
	if pipeline == len(t.p.Placement) {
		t.p.Placement = append(t.p.Placement, nil)
	}
	t.p.Placement[pipeline] = append(t.p.Placement[pipeline], workers)
	return nil
}

func (t *textReader) list(line string) error {
	worker, text, ok := strings.Cut(line, ":")
	w, err := number(worker, t.p.Workers-1)
	if !ok || err != nil {
		return fmt.Errorf("list %q; the form is \"WORKER: INSTRUCTION ...\", with a worker below %d", clip(worker),
			t.p.Workers)
	}
	if (*t.part)[w] != nil {
		return fmt.Errorf("worker %d has its list already", w)
	}
	n := 0
	for range strings.FieldsSeq(text) {
		n++
	}
	list := make(List, 0, min(n, MaxInstructions)) // every process has the lists of all workers
	for word := range strings.FieldsSeq(text) {
		if t.count++; t.count > MaxInstructions {
			return fmt.Errorf("worker %d, instruction %d: a program can have %d instructions in its lists", w,
				len(list), MaxInstructions)
		}
		in, err := ParseInstruction(word)
		if err != nil {
			return fmt.Errorf("worker %d, instruction %d: %w", w, len(list), err)
		}
		list = append(list, in)
	}
	(*t.part)[w] = list
	return nil
}

func fields(s string, limit int) ([]int, error) {
	var ns []int
	for word := range strings.FieldsSeq(s) {
		n, err := number(word, limit)
		if err != nil {
			return nil, err
		}
		ns = append(ns, n)
	}
	if ns == nil {
		return nil, fmt.Errorf("it names nothing")
	}
	return ns, nil
}

// readElastic reads "3 0.25 dilute_first": pipelines, alpha and order of elastic averaging. The name of a reference may
// follow.
func readElastic(value string) (*plan.Elastic, error) {
	words := strings.Fields(value)
	if len(words) != 3 && len(words) != 4 {
		return nil, fmt.Errorf("%q; the form is \"elastic PIPELINES ALPHA ORDER\", or that and a REFERENCE", clip(value))
	}
	n, err := number(words[0], plan.MaxPipelines)
	if err != nil {
		return nil, err
	}
	alpha, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return nil, fmt.Errorf("alpha %q; it is a number from 0 to 1", clip(words[1]))
	}
	e := &plan.Elastic{Pipelines: n, Alpha: alpha, Order: plan.AveragingOrder(words[2])}
	if len(words) == 4 {
		e.Reference = plan.Reference(words[3])
	}
	return e, e.Check()
}

// recomputed reads a list that recomputing wrote.
func recomputed(value string, stages int) ([]plan.Recompute, error) {
	all := make([]plan.Recompute, stages)
	if value == "" {
		return nil, fmt.Errorf("it names nothing")
	}
	for word := range strings.FieldsSeq(value) {
		stage, layers, some := strings.Cut(word, ":")
		s, err := number(stage, stages-1)
		if err != nil {
			return nil, err
		}
		all[s] = plan.KeepInput
		if again, err := plan.ParseRecompute(layers); some && err == nil && !again.Trained() {
			all[s] = again
		} else if some {
			k, err := number(layers, MaxMicro)
			if err == nil && k < 1 {
				err = fmt.Errorf("stage %d recomputes %d layers at a time; it must be 1 at least", s, k)
			}
			if err != nil {
				return nil, err
			}
			all[s] = plan.Every(k)
		}
	}
	return all, nil
}
