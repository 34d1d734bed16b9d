package sim

import "github.com/millrace-ml/millrace/schedule"

// What an update takes is said by its Program (schedule.UpdateCost), in parts of what a profile or costs say of its
// stage.

// fixedBytes is what a pipeline holds of a stage throughout: a reference, and whoever fetches its weights, no
// optimizer.
func fixedBytes(p *schedule.Program, pipeline int, c *StageCost) int64 {
	if p.IsReference(pipeline) && p.Beside() { // what its thread works on, and what pipelines see and evaluations show
		return 2*c.ReferenceBytes + c.FrozenBytes
	}
	if p.IsReference(pipeline) || p.Served() && !p.IsServer(pipeline) {
		return c.ReferenceBytes + c.FrozenBytes
	}
	return c.FixedBytes
}

// changing is the bytes that an update changes, of those that a stage holds throughout.
func (c *StageCost) changing() int64 { return c.FixedBytes - c.FrozenBytes }

// updatePeak is the most held inside an update above what was held before it.
func (c *StageCost) updatePeak(cost schedule.UpdateCost) int64 {
	return cost.PeakWhole*c.changing() + cost.PeakLayer*c.LayerBytes + cost.PeakStep*c.UpdatePeak
}

// updateS is how long an update computes. Of costs that say no other times, every update takes an UpdateS.
func (c *StageCost) updateS(cost schedule.UpdateCost) float64 {
	switch {
	case cost.Work == schedule.PullWork:
		return max(c.UpdateS, c.PulledUpdateS)
	case cost.Work == schedule.TakeWork && c.ReferenceUpdateS > 0:
		return float64(cost.Times) * c.ReferenceUpdateS
	}
	return c.UpdateS
}
