package stage

import (
	"fmt"
	"slices"
)

// wiring says which values the layers of a stage read and make, and which of them a backward needs. It has no tensors.
//
// If a network begins with frozen layers, their outputs have no gradient, since no earlier parameter learns. These
// layers have no backward. So a forward keeps a value of such a layer only if a layer with a backward reads it.
//
// Under recompute a stage's layers are divided into segments of Segment layers, from the stage's first layer on. The
// last segment may be shorter. Between forward and backward a micro-batch holds the values that a segment reads from
// earlier segments. The backward takes the segments from the last to the first. It repeats a segment's forward, this
// time with graphs, computes the segment's backward and frees it.
type wiring struct {
	c     *Config
	in    []int // values that cross the cut before the stage
	out   []int // values that cross the cut after the stage
	feeds []int // model inputs that some layer reads
}

func wire(c *Config) *wiring {
	return &wiring{c: c, in: c.Graph.cut(c.First), out: c.Graph.cut(c.Last + 1), feeds: c.Graph.needs(c.First, c.Last)}
}

// check returns an error unless the tensors in `given` are exactly the values of `in` and `feeds`.
func (w *wiring) check(given Tensors) error {
	for _, ids := range [2][]int{w.in, w.feeds} {
		for _, v := range ids {
			if given[v] == nil {
				return fmt.Errorf("stage: %s has not been given", w.c.Graph.Name(v))
			}
		}
	}
	if want := len(w.in) + len(w.feeds); len(given) != want {
		return fmt.Errorf("stage: %d tensors given; layers %d to %d read %d", len(given), w.c.First, w.c.Last, want)
	}
	return nil
}

// makesLoss says whether layer l is the model's last.
func (w *wiring) makesLoss(l int) bool { return l == len(w.c.Graph.Model.Layers)-1 }

// has says whether layer l belongs to the stage.
func (w *wiring) has(l int) bool { return l >= w.c.First && l <= w.c.Last }

// back says whether layer l has a backward: its outputs have gradients, or it makes the loss.
func (w *wiring) back(l int) bool {
	return w.makesLoss(l) || slices.ContainsFunc(w.c.Graph.makes[l], func(v int) bool {
		return w.c.Graph.values[v].gradient
	})
}

// anyBack says whether one of these layers has a backward.
func (w *wiring) anyBack(first, last int) bool {
	for l := first; l <= last; l++ {
		if w.back(l) {
			return true
		}
	}
	return false
}

// records says whether a backward needs the inputs of layer l. This is the backward of l or, under recompute, of any
// layer in its segment.
func (w *wiring) records(l int) bool {
	if w.c.Segment == 0 {
		return w.back(l)
	}
	first := w.segment(l)
	return w.anyBack(first, min(first+w.c.Segment-1, w.c.Last))
}

// segment returns the first layer of the segment that layer l is in. Without recompute all layers are one segment.
func (w *wiring) segment(l int) (first int) {
	if w.c.Segment == 0 {
		return w.c.First
	}
	return l - (l-w.c.First)%w.c.Segment
}

// spans says whether a later segment with a backward reads a value.
func (w *wiring) spans(v int) bool {
	if w.c.Segment == 0 {
		return false
	}
	end := w.c.Graph.values[v].layer
	end += w.c.Segment - (end-w.c.First)%w.c.Segment // the first layer after its segment
	return w.recorded(v, end)
}

// recorded says whether a layer from `first` on needs a value for a backward.
func (w *wiring) recorded(v, first int) bool {
	for l := first; l <= w.c.Last; l++ {
		if slices.Contains(w.c.Graph.reads[l], v) && w.records(l) {
			return true
		}
	}
	return false
}

// forwardOnly says whether no backward of the stage needs a value.
func (w *wiring) forwardOnly(v int) bool {
	x := &w.c.Graph.values[v]
	return !x.gradient && !w.makesLoss(x.layer) && !w.recorded(v, w.c.First)
}
