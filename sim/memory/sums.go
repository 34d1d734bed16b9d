package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Sums holds prefix sums over the layers, on one device type at one number of rows. With them, a few subtractions are
// enough to compute the bytes that a stage holds.
//
// It counts what Of counts, simplified where Of's number is not a sum. A parameter shared inside a stage counts for
// each of its layers, and model inputs do not count. For temporary bytes only the widest layer counts. So Sums can rank
// plans and tell approximately whether they fit; a simulation is more exact.
type Sums struct {
	Gradients []int64 // gradient bytes of all layers before each layer; the last element is the total
	Cut       []int64 // bytes that cross the cut before each layer

	weights, states, still []int64 // sums before each layer: parameters; optimizer states; what replicas do not divide
	saved                  []int64 // sum before each layer of what forwards save
	costs                  []profile.Cost
	widest                 []int64  // by group of blockOf layers: the largest need of a layer while it runs
	blocks                 []string // name of each layer's block (plan.BlockOf)
}

// Replicas is the number of a stage's replicas, and what they divide. Its zero value is one replica.
type Replicas struct {
	N     int
	Shard plan.Shard
}

// blockOf is the number of layers in a group; Sums keeps the widest layer of each group.
const blockOf = 64

// SumsOf returns the sums of all layers. `costs` are those of the layers on one device type at one number of rows.
func SumsOf(p *profile.Profile, costs []profile.Cost) *Sums {
	n := len(costs)
	s := &Sums{
		Gradients: make([]int64, n+1), Cut: make([]int64, n+1), weights: make([]int64, n+1), states: make([]int64, n+1),
		still: make([]int64, n+1), saved: make([]int64, n+1), costs: costs, widest: make([]int64, n/blockOf+1),
		blocks: make([]string, n),
	}
	last := make([]int, n) // the last layer that reads each layer's output
	for l, layer := range p.Layers {
		for _, from := range layer.From {
			if from >= 0 {
				last[from] = l
			}
		}
	}
	read := make([]bool, n) // by layer: whether a layer with a backward reads it
	for _, layer := range p.Layers {
		for _, from := range layer.From {
			if from >= 0 && !layer.NoGradient {
				read[from] = true
			}
		}
	}
	for k := range costs {
		c, layer := &costs[k], &p.Layers[k]
		own := layer.ParameterBytes + layer.TiedBytes
		gradients := p.SummedBytes(own)
		s.Gradients[k+1] = s.Gradients[k] + gradients
		s.weights[k+1], s.states[k+1] = s.weights[k]+own, s.states[k]+p.StateBytes(own)
		s.still[k+1], s.blocks[k] = s.still[k]+layer.StillBytes(), plan.BlockOf(layer.Name)
		s.saved[k+1] = s.saved[k]
		if !layer.NoGradient || read[k] {
			s.saved[k+1] += c.SavedBytes
		}
		s.widest[k/blockOf] = max(s.widest[k/blockOf], running(c))
		if last := last[k]; last > k { // the output crosses the cuts before layers k+1..last
			s.Cut[k+1] += c.OutputBytes
			s.Cut[last+1] -= c.OutputBytes
		}
	}
	for k := 1; k <= n; k++ {
		s.Cut[k] += s.Cut[k-1]
	}
	return s
}

// running returns the bytes that a layer needs while it runs, in addition to what it saves.
func running(c *profile.Cost) int64 { return max(c.WorkspaceBytes, c.BackwardPeakBytes-c.SavedBytes) }

// Widest returns the most bytes that a layer of from..to-1 needs while it runs, at least 0.
func (s *Sums) Widest(from, to int) int64 {
	most := int64(0)
	for k := from; k < to; {
		if k%blockOf == 0 && k+blockOf <= to {
			most = max(most, s.widest[k/blockOf])
			k += blockOf
			continue
		}
		most = max(most, running(&s.costs[k]))
		k++
	}
	return most
}

// Held returns approximately what a stage of layers from..to-1 holds with inFlight micro-batches. Under recompute each
// micro-batch holds what crosses the cuts in front of the segments, and the largest segment's activations exist once.
// Layers outside of recomputed blocks keep what they saved.
func (s *Sums) Held(from, to, inFlight int, again plan.Recompute, r Replicas) int64 {
	part := divided{r.Shard, max(1, r.N)}
	always := s.still[to] - s.still[from] + part.weights(s.weights[to]-s.weights[from]) +
		part.gradients(s.Gradients[to]-s.Gradients[from]) + part.states(s.states[to]-s.states[from]) + s.Widest(from, to)
	kept, segment := s.Cut[from], int64(0)
	switch k := again.Segment(to - from); {
	case again == plan.Blocks:
		kept, segment = s.inBlocks(from, to)
	case k == 0:
		kept += s.saved[to] - s.saved[from]
	default:
		for at := from; at < to; at += k {
			if at > from {
				kept += s.Cut[at]
			}
			segment = max(segment, s.saved[min(at+k, to)]-s.saved[at])
		}
	}
	return always + int64(inFlight)*kept + segment
}

// inBlocks is for stages that recompute blocks. It returns the bytes that a micro-batch in flight keeps, and the
// activations of the largest block.
func (s *Sums) inBlocks(from, to int) (kept, block int64) {
	kept = s.Cut[from]
	for at := from; at < to; {
		if at > from && s.blocks[at-1] != "" {
			kept += s.Cut[at]
		}
		end := at + 1
		for s.blocks[at] != "" && end < to && s.blocks[end] == s.blocks[at] {
			end++
		}
		if saved := s.saved[end] - s.saved[at]; s.blocks[at] == "" {
			kept += saved
		} else {
			block = max(block, saved)
		}
		at = end
	}
	return kept, block
}
