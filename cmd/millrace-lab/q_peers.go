package main

import (
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/lab/race"
)

// peersReport is everything that bench peers found.
type peersReport struct {
	Torch   string                     `json:"torch"`
	Unit    race.Unit                  `json:"unit"`
	Choice  string                     `json:"choice"` // why millrace's plan was chosen
	Sweeps  map[string][]race.Measured `json:"sweeps"`
	Results []race.Result              `json:"results"`
	order   []string                   // of Sweeps
}

func (r *peersReport) write(w io.Writer) error {
	fmt.Fprintf(w, "PyTorch %s. millrace's choice: %s\n\n", r.Torch, r.Choice)
	if err := race.WriteResults(w, r.Unit, r.Results); err != nil {
		return err
	}
	for _, name := range r.order {
		fmt.Fprintf(w, "\n%s\n\n", name)
		if err := race.WriteSweep(w, r.Unit, r.Sweeps[name]); err != nil {
			return err
		}
	}
	return nil
}
