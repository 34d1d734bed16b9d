package sim

import "github.com/millrace-ml/millrace/schedule"

// Elastic averaging in memory: every pipeline holds a model and optimizer states of its own,
// with parameter gradients from its first backward to its update; the reference holds
// parameters and buffers and no optimizer. An update of a pipeline leaves its step and its buffers in the worker's
// queue, as large as the reference, until the reference applies it with those of the others.
//
// In time: a pipeline's update dilutes its weights and fills the queue beside what its
// optimizer does, and the reference's adds up as many steps as there are pipelines. Profiles measure both; of costs
// without them every update takes an UpdateS.

// fixedBytes is what a pipeline holds of a stage throughout.
func fixedBytes(p *schedule.Program, pipeline int, c *StageCost) int64 {
	if p.IsReference(pipeline) {
		return c.ReferenceBytes
	}
	return c.FixedBytes
}

// updatePeak is the most held inside an update above what was held before it.
func updatePeak(p *schedule.Program, u schedule.Instruction, c *StageCost) int64 {
	switch {
	case p.PostValidate: // copies of all that it changes, and of a layer's gradients, which a step uses up
		return c.FixedBytes + c.LayerBytes + c.UpdatePeak
	case p.Elastic == nil || p.Pipelines() == 1:
		return c.UpdatePeak
	case p.IsReference(int(u.Pipeline)):
		return 0
	}
	return c.UpdatePeak + c.LayerBytes
}

// queued is by how much an update changes the queue of its worker.
func queued(p *schedule.Program, u schedule.Instruction, c *StageCost) int64 {
	switch n := p.Pipelines(); {
	case p.Elastic == nil || n == 1:
		return 0
	case p.IsReference(int(u.Pipeline)):
		return -int64(n) * c.ReferenceBytes
	}
	return c.ReferenceBytes
}

// updateS is how long an update computes.
func updateS(p *schedule.Program, u schedule.Instruction, c *StageCost) float64 {
	switch n := p.Pipelines(); {
	case p.Elastic == nil || n == 1:
		return c.UpdateS
	case p.IsReference(int(u.Pipeline)):
		if c.ReferenceUpdateS == 0 {
			return c.UpdateS
		}
		return float64(n) * c.ReferenceUpdateS
	}
	return max(c.UpdateS, c.ElasticUpdateS)
}
