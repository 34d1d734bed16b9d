package profile

import "github.com/millrace-ml/millrace/profile/kernels"

// StateBytes returns the bytes that an optimizer keeps in addition to this many bytes of parameters. With 16-bit
// parameters it also keeps 32-bit copies (Micikevicius et al., Mixed Precision Training, 2018, section 3.1). For
// Adam that is 12 of the 16 or 18 bytes per parameter.
func (p *Profile) StateBytes(parameterBytes int64) int64 {
	if kernels.Sixteen(p.Precision) {
		return parameterBytes * 2 * int64(1+p.OptimizerStates)
	}
	return parameterBytes * int64(p.OptimizerStates)
}

// SummedBytes returns the size of the gradients of this many bytes of parameters. For bf16 and fp8 it is twice as
// large: gradients then have 32 bits, since sums with few digits would lose small values. Otherwise both sizes are
// equal. This matches Megatron-LM: 18 bytes per parameter in bf16, and 16 in f16.
func (p *Profile) SummedBytes(parameterBytes int64) int64 {
	if p.Precision == "bf16" || p.Precision == "fp8" {
		return 2 * parameterBytes
	}
	return parameterBytes
}

// UpdateTimes holds the times of one update of the parameters of a layer or a stage.
type UpdateTimes struct {
	UpdateS float64 `json:"update_s"` // one optimizer step
	// PulledUpdateS is the time of one update of a pipeline in elastic averaging (AvgPipe, §3.2). The update makes the
	// optimizer's step, dilutes the parameters with the reference's, and puts the step in the queue. ReferenceUpdateS
	// is the time that the reference's update takes for each pipeline. If a time is 0, it was not measured, and a plain
	// step's time is used.
	PulledUpdateS    float64 `json:"elastic_update_s,omitempty"`
	ReferenceUpdateS float64 `json:"reference_update_s,omitempty"`
}

// Add adds another layer's times.
func (u *UpdateTimes) Add(v UpdateTimes) {
	u.UpdateS += v.UpdateS
	u.PulledUpdateS += v.PulledUpdateS
	u.ReferenceUpdateS += v.ReferenceUpdateS
}

// Scale multiplies each of the three times by its factor.
func (u *UpdateTimes) Scale(plain, pulled, reference float64) {
	u.UpdateS *= plain
	u.PulledUpdateS *= pulled
	u.ReferenceUpdateS *= reference
}

// Max replaces each of the times by the larger of u's and v's.
func (u *UpdateTimes) Max(v UpdateTimes) {
	u.UpdateS = max(u.UpdateS, v.UpdateS)
	u.PulledUpdateS = max(u.PulledUpdateS, v.PulledUpdateS)
	u.ReferenceUpdateS = max(u.ReferenceUpdateS, v.ReferenceUpdateS)
}

// named returns the times with the names of their fields.
func (u *UpdateTimes) named() []named {
	return []named{{"update_s", &u.UpdateS}, {"elastic_update_s", &u.PulledUpdateS},
		{"reference_update_s", &u.ReferenceUpdateS}}
}

// updatesOf returns the update times of a roofline. Each kind of update reads and writes arrays of parameterBytes
// bytes. Its time is the bytes of all these reads and writes, divided by `memory`, the bandwidth in bytes per second.
func updatesOf(parameterBytes int64, states int, memory float64) UpdateTimes {
	passes := func(n int) float64 { return float64(parameterBytes*int64(n)) / memory }
	own := 3 + 2*states // reads parameters, gradients and states; writes parameters and states
	// A pipeline also reads the reference and writes its step. The reference reads a step and itself, and writes
	// itself.
	return UpdateTimes{UpdateS: passes(own), PulledUpdateS: passes(own + 2), ReferenceUpdateS: passes(3)}
}
