package slow

import (
	"math"

	"github.com/millrace-ml/millrace/cluster"
)

// Published is what PipeDream (SOSP'19) reports for VGG-16, and the share of data parallelism's all-reduce.
type Published struct {
	Cluster string  // our preset for the cluster of Table 2
	Where   string  // servers and GPUs of Table 1
	Factor  float64 // epoch time of data parallelism divided by PipeDream's, Table 1
	Share   float64 // all-reduce time divided by compute time
}

// These are values of VGG-16 in PipeDream. publishedBatch is the number of images per GPU in data parallelism (section
// 5.1). In the published profile (graph.txt), the forward and backward of profiledBatch images take profiledS seconds.
const (
	publishedParameters = 138357544
	publishedBatch      = 64
	profiledBatch       = 128
	profiledS           = 0.2339 + 0.4386
)

// PipeDream returns VGG-16's values from Table 1 of PipeDream. The paper does not print the time of an all-reduce. So
// Share is computed: the time of the best rings over the links of Table 2 (cluster.AllReduceS), divided by the compute
// time of the published profile.
func PipeDream() ([]Published, error) {
	all := []Published{
		{Cluster: "pipedream-a:4x4", Where: "4 servers x 4 V100, 10 Gbit/s", Factor: 5.28},
		{Cluster: "pipedream-b:2x8", Where: "2 servers x 8 V100, 25 Gbit/s", Factor: 2.98},
	}
	for i, p := range all {
		c, err := cluster.Read(p.Cluster)
		if err != nil {
			return nil, err
		}
		devices := make([]int, len(c.Devices))
		for d := range devices {
			devices[d] = d
		}
		all[i].Share = c.AllReduceS(devices, 4*publishedParameters) / (profiledS * publishedBatch / profiledBatch)
	}
	return all, nil
}

// Nearest returns the cell of a model whose share is nearest to a published one, measured by their ratio. It returns
// nil if there is no cell.
func (r *Results) Nearest(model string, p Published) *Cell {
	var best *Cell
	far := func(c *Cell) float64 { return math.Abs(math.Log(c.Share() / p.Share)) }
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Model == model && (best == nil || far(c) < far(best)) {
			best = c
		}
	}
	return best
}
