package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// describe prints one checkpoint in detail.
func describe(w io.Writer, s checkpoint.Seen) error {
	m := s.Manifest
	facts := [][2]string{
		{"checkpoint", s.Path},
		{"model", fmt.Sprintf("%s (%s), %s on %s", m.Model, m.ModelID, m.Float, m.Engine)},
		{"training", fmt.Sprintf("%s done, %s, loss %s", terminal.Count(m.Steps, "step"),
			terminal.Count(int(m.Samples), "sample"), terminal.Loss(m.Loss))},
		{"batch", fmt.Sprintf("%s as micro-batches of %d, seed %d", batchOf(m), m.MicroBatch, m.Seed)},
		{"optimizer", optimizerOf(m)},
	}
	if a := m.Asked; a != nil {
		asked := terminal.Count(a.Steps, "step")
		for _, every := range []struct {
			n    int
			what string
		}{{a.SaveEvery, "save"}, {a.EvalEvery, "evaluation"}} {
			if every.n > 0 {
				asked += fmt.Sprintf(", %s every %d", every.what, every.n)
			}
		}
		facts = append(facts, [2]string{"asked for", asked})
	}
	if p := m.Plan; p != nil {
		text := fmt.Sprintf("%s, %s on %s", p.Schedule, terminal.Count(len(p.Stages), "stage"),
			terminal.Count(len(p.Devices()), "worker"))
		if p.Weights != "" {
			text += ", weights " + p.Weights
		}
		if n := p.Together(); n > 1 {
			text += fmt.Sprintf(", %d pipelines side by side", n)
		}
		facts = append(facts, [2]string{"plan", text})
	}
	if err := writeFacts(w, facts); err != nil {
		return err
	}
	if m.Plan != nil {
		if err := section(w, stagesOf(m.Plan)); err != nil {
			return err
		}
	}
	return section(w, filesOf(s))
}

// batchOf returns the samples of a step.
func batchOf(m *checkpoint.Manifest) string {
	text := terminal.Count(m.Batch, "sample")
	if p := m.Plan; p != nil && p.Together() > 1 {
		text += fmt.Sprintf(" for each of %d pipelines", p.Together())
	}
	return text
}

func optimizerOf(m *checkpoint.Manifest) string {
	o := m.Optimizer
	text := o.Kind
	if states := o.States(); len(states) > 0 {
		text += " (keeps " + strings.Join(states, ", ") + ")"
	}
	text += fmt.Sprintf(", learning rate %.6g (%s)", m.Rate.Base, m.Rate.Kind)
	if n := m.Rate.Warmup; n > 0 {
		text += ", warm-up " + terminal.Count(n, "step")
	}
	if m.Clip > 0 {
		text += fmt.Sprintf(", gradients clipped to %.6g", m.Clip)
	}
	return text
}

func stagesOf(p *plan.Plan) *report.Table {
	t := &report.Table{Head: []string{" stage", "layers", "workers"}}
	for i, s := range p.Stages {
		var workers []string
		for _, d := range s.Devices {
			workers = append(workers, strconv.Itoa(d))
		}
		t.Add(i, s.Layers(), strings.Join(workers, " "))
	}
	return t
}

func filesOf(s checkpoint.Seen) *report.Table {
	t := &report.Table{Head: []string{"file", " size", " tensors", "crc32c", "here"}}
	several := s.Manifest.Hosts() != nil
	if several {
		t.Head = append(t.Head, "host")
	}
	for _, f := range s.Manifest.Files {
		here := "yes"
		if why := s.Missing[f.Name]; why != "" {
			here = why
		}
		t.Add(f.Name, terminal.Bytes(f.Bytes), f.Tensors, f.CRC32C, here, f.Host)
	}
	return t
}
