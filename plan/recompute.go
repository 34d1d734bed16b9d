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
// Its text is "none", "stage" or "every K"; JSON booleans of earlier plans are read as the
// first two.
type Recompute int

const (
	// KeepAll recomputes nothing.
	KeepAll Recompute = 0
	// KeepInput keeps what crosses the cut in front of the stage, and the backward begins with
	// the whole stage's forward (GPipe §2.3).
	KeepInput Recompute = -1
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

// Segment is how many layers of a stage's are recomputed at a time: the segments begin with
// its first layer and the last may be shorter. 0: nothing is.
func (r Recompute) Segment(layers int) int {
	if r < 0 {
		return layers
	}
	return min(int(r), layers)
}

// String is the text form.
func (r Recompute) String() string {
	switch {
	case r == KeepAll:
		return "none"
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
	}
	if count, ok := strings.CutPrefix(strings.Replace(text, ":", " ", 1), "every "); ok {
		if k, err := strconv.Atoi(count); err == nil && k >= 1 && k <= maxCount {
			return Every(k), nil
		}
	}
	return KeepAll, fmt.Errorf("plan: recompute is %q; it is none, stage, or every and a number of layers from 1 on, "+
		"like \"every 2\"", text)
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
		return fmt.Errorf("plan: recompute is %s; it is \"none\", \"stage\" or \"every K\", true or false", data)
	}
	var err error
	*r, err = ParseRecompute(text)
	return err
}
