package bench

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

// PeersReport is the result of bench peers.
type PeersReport struct {
	record.Head
	Torch  string      `json:"torch"`
	Unit   race.Unit   `json:"unit"`
	Choice string      `json:"choice"` // why millrace's plan was chosen
	Rivals []PeerRival `json:"rivals"`
}

// PeerRival is one rival: its settings, best first, and the races against the best setting.
type PeerRival struct {
	Name   string          `json:"name"`
	Doc    string          `json:"doc"`
	Sweep  []race.Measured `json:"sweep"`
	Choice race.Result     `json:"choice"` // race with the plan that millrace chooses
	// Pipeline is the race with millrace's pipeline of two stages, if the rival is a pipeline.
	Pipeline *race.Result `json:"pipeline,omitempty"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (r *PeersReport) Kind() string { return "peers" }

// Recount returns an error for numbers that do not follow from the pairs.
func (r *PeersReport) Recount() (wrong error) {
	for i := range r.Rivals {
		for _, result := range r.Rivals[i].results() {
			wrong = errors.Join(wrong, recount(&r.Head, r.Rivals[i].Name, &result))
		}
	}
	return wrong
}

func (p *PeerRival) results() []race.Result {
	if p.Pipeline == nil {
		return []race.Result{p.Choice}
	}
	return []race.Result{p.Choice, *p.Pipeline}
}

// recount returns an error if a race's median or interval does not follow from its pairs.
func recount(h *record.Head, what string, r *race.Result) error {
	return h.Median(fmt.Sprintf("%s: %s over %s", what, r.A.Name, r.B.Name), r.Ratios, r.MedianRatio, r.Interval)
}

func (r *PeersReport) Write(w io.Writer) error {
	fmt.Fprintf(w, "PyTorch %s. millrace's choice: %s\n\n", r.Torch, r.Choice)
	var results []race.Result
	for i := range r.Rivals {
		results = append(results, r.Rivals[i].results()...)
	}
	if err := race.WriteResults(w, r.Unit, results); err != nil {
		return err
	}
	for _, p := range r.Rivals {
		fmt.Fprintf(w, "\n%s\n\n", p.Doc)
		if err := race.WriteSweep(w, r.Unit, p.Sweep); err != nil {
			return err
		}
	}
	return nil
}
