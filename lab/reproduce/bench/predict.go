package bench

import (
	"maps"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// Predict simulates a plan as millrace's predictions do. It returns the time of a step in the steady state, and the
// memory of each device.
func (b *Bench) Predict(pl *plan.Plan) (plan.Predicted, error) {
	sizes := []int{1, pl.MicroBatch}
	for _, s := range pl.Stages {
		sizes = append(sizes, (pl.MicroBatch+len(s.Devices)-1)/len(s.Devices))
	}
	p, err := b.Profile(sizes...)
	if err != nil {
		return plan.Predicted{}, err
	}
	pl.ModelID = p.ModelID
	return predict.Plan(p, b.C.Unlimited(), pl, false)
}

// SizesFor returns the batch, the powers of two below it, and the requested micro-batch size unless that is 0.
func SizesFor(batch, microBatch int) []int {
	sizes := []int{batch}
	if microBatch > 0 {
		sizes = append(sizes, microBatch)
	}
	for n := 1; n < batch; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes
}

// Configuration returns a plan's replica counts as text, such as "15-1". It returns "straight" for a pipeline without
// replicas, and one number for data parallelism.
func Configuration(pl *plan.Plan) string {
	var words []string
	most := 0
	for _, s := range pl.Stages {
		words = append(words, strconv.Itoa(len(s.Devices)))
		most = max(most, len(s.Devices))
	}
	if most == 1 && len(words) > 1 {
		return "straight"
	}
	return strings.Join(words, "-")
}

// Source says where costs come from.
func (b *Bench) Source() string {
	if b.Given != nil {
		return "published"
	}
	return "analytic"
}

// Slowed returns the bench on devices whose compute and memory rates are a fraction of the described ones.
func (b *Bench) Slowed(part float64) *Bench {
	slower, c := *b, *b.C
	c.DeviceTypes = maps.Clone(c.DeviceTypes)
	for name, d := range c.DeviceTypes {
		d.PeakFLOPS *= part
		d.MemoryBandwidthBytesPerSecond *= part
		c.DeviceTypes[name] = d
	}
	slower.C = &c
	return &slower
}
