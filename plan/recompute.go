package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Recompute says what a stage keeps of a micro-batch between its forward and its backward. The backward computes the
// rest again.
//
// Its text is "none", "stage", "every K", "blocks" or "selective". JSON booleans of earlier plans are read as the first
// two: false is none, true is stage.
type Recompute int

const (
	// KeepAll recomputes nothing.
	KeepAll Recompute = 0
	// KeepInput keeps what crosses the cut before the stage. The backward begins with the whole stage's forward (GPipe
	// §2.3).
	KeepInput Recompute = -1
	// Blocks keeps the input of each block, for layers named like block7.mlp. The backward recomputes one block at a
	// time. Layers outside of blocks, such as an embedding, a head or a loss, keep everything.
	Blocks Recompute = -2
	// Selective keeps everything except the attention scores (Korthikanti et al., Reducing Activation Recomputation in
	// Large Transformer Models, 2022, section 5).
	Selective Recompute = -3
)

// Every keeps the input of the stage's first layer and of every k-th layer after it. The backward recomputes k layers
// at a time, the last ones first (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section 3). k is at
// least 1.
func Every(k int) Recompute { return Recompute(k) }

// AtBoundary returns KeepInput if a stage is to recompute, and KeepAll otherwise.
func AtBoundary(again bool) Recompute {
	if again {
		return KeepInput
	}
	return KeepAll
}

// Again says whether anything is recomputed.
func (r Recompute) Again() bool { return r != KeepAll }

// Trained says whether package run can execute this setting. Other settings are only planned and simulated.
func (r Recompute) Trained() bool { return r >= KeepInput }

// Segment returns how many layers of a stage are recomputed at a time, for settings that are Trained. The first
// segment begins with the stage's first layer, and the last may be shorter. 0 means that nothing is recomputed.
func (r Recompute) Segment(layers int) int {
	switch {
	case r == KeepInput:
		return layers
	case r < 0:
		return 0
	}
	return min(int(r), layers)
}

// Segments returns the runs of a stage's layers that are recomputed together. Each has the position of its first layer
// and the position after its last. `name` returns a layer's name by its position in the stage.
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

// BlockOf returns the block of a layer named like block7.mlp; "" means that it is in none.
func BlockOf(layer string) string {
	prefix, _, inside := strings.Cut(layer, ".")
	letters := strings.TrimRight(prefix, "0123456789")
	if !inside || letters == prefix || letters == "" {
		return ""
	}
	return prefix
}

// String returns the text form.
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

// ParseRecompute reads the text form. It also accepts every:K in place of "every K", which a shell would need quotes
// for.
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

// MarshalText returns the text form.
func (r Recompute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalJSON reads the text form. It also reads the boolean that earlier plans have instead.
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
