package schedule

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/plan"
)

// TextHeader is the first line of the text form.
const TextHeader = "millrace program 1"

// Text writes the Program in its text form, which ParseText reads back to the same
// Program: a line for each setting, then the lists of each part that has any.
func (p *Program) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, TextHeader)
	fmt.Fprintf(&b, "name %s\nstages %d\nworkers %d\nmicro_batches %d\nperiod %d\nrepeat %d\n",
		p.Name, p.Stages, p.Workers, p.MicroBatches, p.Period, p.Repeat)
	fmt.Fprintf(&b, "weights %s\nreplication %s\nlowered %v\n", p.Weights, p.Replication, p.Lowered)
	for pl, stages := range p.Placement {
		for s, on := range stages {
			fmt.Fprintf(&b, "place p%d/%d: %s\n", pl, s, numbers(on))
		}
	}
	if e := p.Elastic; e != nil {
		fmt.Fprintf(&b, "elastic %d %s %s\n", e.Pipelines, strconv.FormatFloat(e.Alpha, 'g', -1, 64), e.Order)
	}
	if p.Clip {
		fmt.Fprintln(&b, "clip true")
	}
	if p.Paired {
		fmt.Fprintln(&b, "paired true")
	}
	if p.DeferUpdates {
		fmt.Fprintln(&b, "defer_updates true")
	}
	if p.PostValidate {
		fmt.Fprintln(&b, "post_validate true")
	}
	if slices.ContainsFunc(p.Recompute, plan.Recompute.Again) {
		fmt.Fprintf(&b, "recompute%s\n", recomputing(p.Recompute))
	}
	for _, group := range p.Tied {
		fmt.Fprintf(&b, "tied %s\n", numbers(group))
	}
	for _, part := range []struct {
		name  string
		lists Part
	}{{"prologue", p.Prologue}, {"body", p.Body}, {"epilogue", p.Epilogue}} {
		if part.lists == nil {
			continue
		}
		fmt.Fprintln(&b, part.name)
		for w, list := range part.lists {
			fmt.Fprintf(&b, "%d:", w)
			for _, in := range list {
				b.WriteByte(' ')
				b.WriteString(in.String())
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// readElastic reads "3 0.25 dilute_first": pipelines, alpha and order of elastic averaging.
func readElastic(value string) (*plan.Elastic, error) {
	words := strings.Fields(value)
	if len(words) != 3 {
		return nil, fmt.Errorf("%q; the form is \"elastic PIPELINES ALPHA ORDER\"", clip(value))
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
	return e, e.Check()
}

// recomputing lists the stages that recompute, each with a space in front: 3 all of it at
// once, 3:2 two layers at a time.
func recomputing(stages []plan.Recompute) string {
	var b strings.Builder
	for s, r := range stages {
		switch {
		case r == plan.KeepInput:
			fmt.Fprintf(&b, " %d", s)
		case r.Again():
			fmt.Fprintf(&b, " %d:%d", s, int(r))
		}
	}
	return b.String()
}

// recomputed reads that list.
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
		if some {
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

func numbers(ns []int) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " ")
}

// ParseText reads the text form. What it accepts still has to pass check.Check. Errors
// name the line.
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

// complete fills in what the text may leave out, and refuses what it may not.
func (p *Program) complete() error {
	if p.Workers < 1 || p.Stages < 1 {
		return fmt.Errorf("it names no workers or no stages; it needs the lines \"workers N\" and \"stages N\"")
	}
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
	part  *Part          // whose lists are being read
	given map[string]int // the line of each setting
	count int            // instructions so far
}

func (t *textReader) read(line string) error {
	if t.line == 1 {
		if line != TextHeader {
			return fmt.Errorf("it begins %q; this millrace reads %q", clip(line), TextHeader)
		}
		return nil
	}
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	if line == "" {
		return nil
	}
	if t.part != nil && line[0] >= '0' && line[0] <= '9' {
		return t.list(line)
	}
	key, value, _ := strings.Cut(line, " ")
	return t.setting(key, strings.TrimSpace(value))
}

func (t *textReader) setting(key, value string) error {
	p := t.p
	if before, twice := t.given[key]; twice && key != "place" && key != "tied" {
		return fmt.Errorf("%s stands in line %d already; give it once", clip(key), before)
	}
	t.given[key] = t.line
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
	case "lowered", "clip", "paired", "defer_updates", "post_validate":
		if value != "true" && value != "false" {
			return fmt.Errorf("%s is %q; it is true or false", key, clip(value))
		}
		*map[string]*bool{"lowered": &p.Lowered, "clip": &p.Clip, "paired": &p.Paired,
			"defer_updates": &p.DeferUpdates, "post_validate": &p.PostValidate}[key] = value == "true"
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
			"weights replication lowered elastic clip paired defer_updates post_validate place recompute tied, "+
			"then prologue, body, epilogue", clip(key))
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
	list := List{}
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

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
