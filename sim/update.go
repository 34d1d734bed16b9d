package sim

import "github.com/millrace-ml/millrace/schedule"

// The Program says what an update does (schedule.UpdateCost), as multiples of a stage's costs.

// fixedBytes returns the bytes of a stage that a pipeline holds throughout. They include no optimizer states for a
// reference, and none for a trainer that fetches its weights from a server.
func fixedBytes(p *schedule.Program, pipeline int, c *StageCost) int64 {
	if p.IsReference(pipeline) && p.Beside() { // the reference's thread updates one copy; pipelines read the other
		return 2*c.ReferenceBytes + c.FrozenBytes
	}
	if p.IsReference(pipeline) || p.Served() && !p.IsServer(pipeline) {
		return c.ReferenceBytes + c.FrozenBytes
	}
	return c.FixedBytes
}

// changing returns the bytes that an update changes, of those that a stage holds throughout.
func (c *StageCost) changing() int64 { return c.FixedBytes - c.FrozenBytes }

// updatePeak returns the peak of an update, above what was held before it.
func (c *StageCost) updatePeak(cost schedule.UpdateCost) int64 {
	return cost.PeakWhole*c.changing() + cost.PeakLayer*c.LayerBytes + cost.PeakStep*c.UpdatePeak
}

// updateS returns how long an update computes. If the costs give no other times, every update takes UpdateS.
func (c *StageCost) updateS(cost schedule.UpdateCost) float64 {
	switch {
	case cost.Work == schedule.PullWork:
		return max(c.UpdateS, c.PulledUpdateS)
	case cost.Work == schedule.TakeWork && c.ReferenceUpdateS > 0:
		return float64(cost.Times) * c.ReferenceUpdateS
	}
	return c.UpdateS
}
