package profile

import "github.com/millrace-ml/millrace/profile/kernels"

// StateBytes is what an optimizer keeps beside parameters of so many bytes. Of 16-bit ones it keeps 32-bit copies too
// (Micikevicius et al., Mixed Precision Training, 2018, section 3.1): of Adam's 16 or 18 bytes a parameter, 12.
func (p *Profile) StateBytes(parameterBytes int64) int64 {
	if kernels.Sixteen(p.Precision) {
		return parameterBytes * 2 * int64(1+p.OptimizerStates)
	}
	return parameterBytes * int64(p.OptimizerStates)
}

// SummedBytes is the gradients of parameters of so many bytes: as many, but of bf16 and fp8, whose few digits would
// lose small ones, they are 32-bit (as Megatron-LM has it: 18 bytes a parameter, and 16 in f16).
func (p *Profile) SummedBytes(parameterBytes int64) int64 {
	if p.Precision == "bf16" || p.Precision == "fp8" {
		return 2 * parameterBytes
	}
	return parameterBytes
}

// UpdateTimes is what one update of the parameters of a layer, or of a stage, takes.
type UpdateTimes struct {
	UpdateS float64 `json:"update_s"` // one optimizer step
	// PulledUpdateS is such a step in a pipeline of elastic averaging (AvgPipe, §3.2): the
	// optimizer's, diluting the parameters with the reference's, and leaving the step in the
	// queue. ReferenceUpdateS is what the reference's update takes for each pipeline. 0 where
	// nobody has measured them: each is then taken to be a plain step.
	PulledUpdateS    float64 `json:"elastic_update_s,omitempty"`
	ReferenceUpdateS float64 `json:"reference_update_s,omitempty"`
}

// Add adds another layer's times.
func (u *UpdateTimes) Add(v UpdateTimes) {
	u.UpdateS += v.UpdateS
	u.PulledUpdateS += v.PulledUpdateS
	u.ReferenceUpdateS += v.ReferenceUpdateS
}

// Scale multiplies each of the times.
func (u *UpdateTimes) Scale(plain, pulled, reference float64) {
	u.UpdateS *= plain
	u.PulledUpdateS *= pulled
	u.ReferenceUpdateS *= reference
}

// Max takes the larger of each of the times.
func (u *UpdateTimes) Max(v UpdateTimes) {
	u.UpdateS = max(u.UpdateS, v.UpdateS)
	u.PulledUpdateS = max(u.PulledUpdateS, v.PulledUpdateS)
	u.ReferenceUpdateS = max(u.ReferenceUpdateS, v.ReferenceUpdateS)
}

// named is the times by the names of their fields.
func (u *UpdateTimes) named() []named {
	return []named{{"update_s", &u.UpdateS}, {"elastic_update_s", &u.PulledUpdateS},
		{"reference_update_s", &u.ReferenceUpdateS}}
}

// updatesOf is the times of a roofline, for so many states of the optimizer: how often an update goes over
// the parameters, by how many bytes of them memory moves in a second.
func updatesOf(parameterBytes int64, states int, memory float64) UpdateTimes {
	passes := func(n int) float64 { return float64(parameterBytes*int64(n)) / memory }
	own := 3 + 2*states // reads parameters, gradients and states; writes parameters and states
	// A pipeline reads the reference and writes its step beside that; the reference reads a step and itself, and
	// writes itself.
	return UpdateTimes{UpdateS: passes(own), PulledUpdateS: passes(own + 2), ReferenceUpdateS: passes(3)}
}
