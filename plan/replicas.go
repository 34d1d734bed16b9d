package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
)

// Shard says what the replicas of a stage shard (Rajbhandari et al., ZeRO, SC 2020; Zhao et al., PyTorch FSDP, VLDB
// 2023). Each of n replicas keeps 1/n of what is sharded, and all of the rest.
//
//	none   nothing is sharded      gradients are all-reduced
//	zero1  the optimizer's states  gradients are reduce-scattered, and weights gathered after the update
//	zero2  gradients too           like zero1, but gradients are scattered for every micro-batch
//	zero3  weights too             weights are also gathered for each forward and backward
//
// Its text is one of these words; ShardNothing is "none" or empty.
type Shard string

// The values of Shard.
const (
	ShardNothing Shard = ""
	ZeRO1        Shard = "zero1"
	ZeRO2        Shard = "zero2"
	ZeRO3        Shard = "zero3"
)

// Shards lists the texts of Shard.
var Shards = []string{"none", string(ZeRO1), string(ZeRO2), string(ZeRO3)}

// ParseShard reads one of Shards; "" means none.
func ParseShard(text string) (Shard, error) {
	if text == "" || text == "none" {
		return ShardNothing, nil
	}
	if err := registry.OneOf(text, Shards); err != nil {
		return ShardNothing, fmt.Errorf("plan: shard is %w", err)
	}
	return Shard(text), nil
}

// States, Gradients and Weights report what is sharded.
func (s Shard) States() bool    { return s != ShardNothing }
func (s Shard) Gradients() bool { return s == ZeRO2 || s == ZeRO3 }
func (s Shard) Weights() bool   { return s == ZeRO3 }

// String returns the text of s, one of Shards.
func (s Shard) String() string {
	if s == ShardNothing {
		return "none"
	}
	return string(s)
}

// Gradients says when the replicas of a stage sum gradients.
//
// "overlapped" sums them during the last backward, as soon as layers have made them. "behind" sums them after the last
// backward. "bucket=25MB" is overlapped, and each sum has at least that many bytes (Li et al., PyTorch Distributed,
// VLDB 2020, section 3.2.3). Without a size, overlapped uses the runtime's own size.
type Gradients string

// These are the values of Gradients without a size.
const (
	GradientsOverlapped Gradients = ""
	GradientsBehind     Gradients = "behind"
)

// gradientsForms describes the texts of Gradients.
const gradientsForms = "overlapped, behind, or bucket= and a size, like bucket=25MB"

// ParseGradients reads a text of Gradients; "" means overlapped.
func ParseGradients(text string) (Gradients, error) {
	switch text {
	case "", "overlapped":
		return GradientsOverlapped, nil
	case "behind":
		return GradientsBehind, nil
	}
	if size, is := strings.CutPrefix(text, "bucket="); is {
		if n, err := cluster.ParseBytes(size); err == nil && n > 0 {
			return Gradients(text), nil
		}
	}
	return GradientsOverlapped, fmt.Errorf("plan: gradients is %q; it is %s", text, gradientsForms)
}

// String returns the text of g.
func (g Gradients) String() string {
	if g == GradientsOverlapped {
		return "overlapped"
	}
	return string(g)
}

// BucketBytes returns the size of a bucket, the least number of bytes that are summed at once. With "behind" it is 0,
// and everything is summed at once. Otherwise 0 means the runtime's own size.
func (g Gradients) BucketBytes() int64 {
	size, _ := strings.CutPrefix(string(g), "bucket=")
	n, err := cluster.ParseBytes(size)
	if err != nil {
		return 0
	}
	return n
}

// UnmarshalJSON reads one of Shards.
func (s *Shard) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		*s, err = ParseShard(text)
	}
	return err
}

// UnmarshalJSON reads a text of Gradients.
func (g *Gradients) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		*g, err = ParseGradients(text)
	}
	return err
}

// checkReplicas refuses unknown texts of shard and gradients, and combinations that Sums refuses. If updates are not
// synchronous, it also refuses every shard, and every setting of gradients except the default.
func (p *Plan) checkReplicas() error {
	if _, err := ParseShard(string(p.Shard)); err != nil {
		return err
	}
	if _, err := ParseGradients(string(p.Gradients)); err != nil {
		return err
	}
	if synchronous := p.Weights == "sync" || p.Weights == ""; !synchronous && p.Shard != ShardNothing {
		return fmt.Errorf("plan: shard is %s for weights %q; replicas divide what one update of all of them changes, "+
			"under sync", p.Shard, p.Weights)
	} else if !synchronous && p.Gradients != GradientsOverlapped {
		return fmt.Errorf("plan: gradients is %s for weights %q; it is of the sum at a flush, under sync", p.Gradients,
			p.Weights)
	}
	if err := p.Shard.Sums(p.Gradients); err != nil {
		return fmt.Errorf("plan: gradients is %w", err)
	}
	return nil
}

// Sums refuses settings of Gradients that do not suit the Shard. If gradients are sharded, each backward scatters them,
// so only the default is accepted.
func (s Shard) Sums(when Gradients) error {
	if s.Gradients() && when != GradientsOverlapped {
		return fmt.Errorf("%s for shard %s, whose replicas scatter gradients beside each backward: leave one of the two out",
			when, s)
	}
	return nil
}

// PlansOnly says which setting of a plan can be planned, simulated and exported, but not executed here. The setting is
// the shard, the gradients or a recompute; if there are several, it is the first of these. PlansOnly returns "" if all
// three can be executed.
func (p *Plan) PlansOnly() string {
	if p.Shard != ShardNothing {
		return "its replicas divide what they keep (shard " + string(p.Shard) + ")"
	}
	if p.Gradients == GradientsBehind {
		return "its replicas sum gradients behind the last backward (gradients behind)"
	}
	if i := slices.IndexFunc(p.Stages, func(s Stage) bool { return !s.Recompute.Trained() }); i >= 0 {
		return fmt.Sprintf("stage %d recomputes %v", i, p.Stages[i].Recompute)
	}
	return ""
}
