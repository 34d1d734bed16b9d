package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Recompute is what a stage keeps of a micro-batch between its forward and its backward,
// and so what it computes a second time.
//
// Its text is "none", "stage", "every K", "blocks" or "selective"; JSON booleans of earlier plans
// are read as the first two.
type Recompute int

const (
	// KeepAll recomputes nothing.
	KeepAll Recompute = 0
	// KeepInput keeps what crosses the cut in front of the stage, and the backward begins with
	// the whole stage's forward (GPipe §2.3).
	KeepInput Recompute = -1
	// Blocks keeps what each block reads, of layers named like block7.mlp, and the backward computes
	// one block again at a time. Layers outside of blocks, as an embedding, a head and a loss, keep all.
	Blocks Recompute = -2
	// Selective keeps all but the scores of attention (Korthikanti et al., Reducing Activation
	// Recomputation in Large Transformer Models, 2022, section 5).
	Selective Recompute = -3
)

// Every keeps what every k-th layer of the stage reads, counted from its first. The backward recomputes k layers at
// a time, from the last k to the first (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section
// 3). k is 1 at least.
func Every(k int) Recompute { return Recompute(k) }

// AtBoundary is KeepInput where a stage is to recompute, or KeepAll.
func AtBoundary(again bool) Recompute {
	if again {
		return KeepInput
	}
	return KeepAll
}

// Again says whether anything is recomputed.
func (r Recompute) Again() bool { return r != KeepAll }

// Trained says whether package run executes it; what is not is planned and simulated alone.
func (r Recompute) Trained() bool { return r >= KeepInput }

// Segment is how many layers of a stage's are recomputed at a time, of what is Trained: the segments
// begin with its first layer and the last may be shorter. 0: nothing is.
func (r Recompute) Segment(layers int) int {
	switch {
	case r == KeepInput:
		return layers
	case r < 0:
		return 0
	}
	return min(int(r), layers)
}

// Segments are the runs of a stage's layers that are recomputed at a time. Each is the positions of its
// first layer and of the one behind its last; name is a layer's by its position in the stage.
func (r Recompute) Segments(layers int, name func(at int) string) (runs [][2]int) {
	if r == Blocks {
		for at := 0; at < layers; {
			from, block := at, BlockOf(name(at))
			for at++; block != "" && at < layers && BlockOf(name(at)) == block; at++ {
			}
			if block != "" {
				runs = append(runs, [2]int{from, at})
			}
		}
		return runs
	}
	if k := r.Segment(layers); k > 0 {
		for at := 0; at < layers; at += k {
			runs = append(runs, [2]int{at, min(at+k, layers)})
		}
	}
	return runs
}

// BlockOf is the block that a layer belongs to, of those named like block7.mlp; "" is none.
func BlockOf(layer string) string {
	prefix, _, inside := strings.Cut(layer, ".")
	letters := strings.TrimRight(prefix, "0123456789")
	if !inside || letters == prefix || letters == "" {
		return ""
	}
	return prefix
}

// String is the text form.
func (r Recompute) String() string {
	switch {
	case r == KeepAll:
		return "none"
	case r == Blocks:
		return "blocks"
	case r == Selective:
		return "selective"
	case r < 0:
		return "stage"
	}
	return fmt.Sprintf("every %d", int(r))
}

// ParseRecompute reads the text form; every:K is as good as every K, which a shell would
// have to quote.
func ParseRecompute(text string) (Recompute, error) {
	switch text {
	case "none":
		return KeepAll, nil
	case "stage":
		return KeepInput, nil
	case "blocks":
		return Blocks, nil
	case "selective":
		return Selective, nil
	}
	if count, ok := strings.CutPrefix(strings.Replace(text, ":", " ", 1), "every "); ok {
		if k, err := strconv.Atoi(count); err == nil && k >= 1 && k <= maxCount {
			return Every(k), nil
		}
	}
	return KeepAll, fmt.Errorf("plan: recompute is %q; it is none, stage, blocks, selective, or every and a number of "+
		"layers from 1 on, like \"every 2\"", text)
}

// MarshalText is the text form.
func (r Recompute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalJSON reads the text form, or a boolean of earlier plans.
func (r *Recompute) UnmarshalJSON(data []byte) error {
	var again bool
	if json.Unmarshal(data, &again) == nil {
		*r = AtBoundary(again)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("plan: recompute is %s; it is \"none\", \"stage\", \"every K\", \"blocks\" or \"selective\", "+
			"true or false", data)
	}
	var err error
	*r, err = ParseRecompute(text)
	return err
}
