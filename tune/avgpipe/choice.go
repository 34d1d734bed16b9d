package avgpipe

// Choice is a method's choice and its cost.
type Choice struct {
	Method Method  `json:"method"`
	At     Degrees `json:"at"`
	// TuningS is the machine's time for the choice, in seconds. For a predictor it is the time to profile the layers
	// and to run the settings that it uses; for the traversal, the time of the trials; for the guidelines, 0.
	// PredictionS is the wall-clock time of the prediction.
	TuningS     float64 `json:"tuning_s"`
	PredictionS float64 `json:"prediction_s"`
	Tried       int     `json:"tried"` // number of settings run
	Predicted   Scored  `json:"predicted"`
	// SimulatedS is the simulated time of a batch at the chosen setting, in seconds. Unless the simulator chose, it
	// differs from Predicted.
	SimulatedS float64 `json:"simulated_s,omitempty"`
	// Measured is the setting's own trial, if it was run; of several rounds, it is the median trial. If Anchored and
	// Rivals are set, all choices run for several rounds.
	Measured *Scored `json:"measured,omitempty"`
	// Refused says why the method chose nothing.
	Refused string `json:"refused,omitempty"`
}

// StepS returns the choice's seconds for a batch: measured if it was run, and otherwise simulated. The method's own
// prediction would not do, because each method is off by a different amount.
func (c *Choice) StepS() float64 {
	if c.Measured != nil {
		return c.Measured.StepS
	}
	return c.SimulatedS
}

// add stores a choice, or the reason why there is none.
func (t *tuning) add(c Choice, chosen Scored, err error) {
	if err != nil {
		c.Refused = err.Error()
	} else {
		c.At, c.Predicted = chosen.At, chosen
		for _, cell := range t.out.Grid {
			if cell.At == c.At {
				c.SimulatedS = cell.Simulated.StepS
			}
		}
	}
	t.out.Choices = append(t.out.Choices, c)
}
