package bench

import (
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/lab/race"
)

// PeersReport is everything that bench peers found.
type PeersReport struct {
	Torch   string                     `json:"torch"`
	Unit    race.Unit                  `json:"unit"`
	Choice  string                     `json:"choice"` // why millrace's plan was chosen
	Sweeps  map[string][]race.Measured `json:"sweeps"`
	Results []race.Result              `json:"results"`
	Order   []string                   // of Sweeps
}

func (r *PeersReport) Write(w io.Writer) error {
	fmt.Fprintf(w, "PyTorch %s. millrace's choice: %s\n\n", r.Torch, r.Choice)
	if err := race.WriteResults(w, r.Unit, r.Results); err != nil {
		return err
	}
	for _, name := range r.Order {
		fmt.Fprintf(w, "\n%s\n\n", name)
		if err := race.WriteSweep(w, r.Unit, r.Sweeps[name]); err != nil {
			return err
		}
	}
	return nil
}
