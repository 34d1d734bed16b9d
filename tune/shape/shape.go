package shape

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Shape says how a model is divided over devices.
type Shape struct {
	Replicas         int    `json:"replicas"` // dp
	Stages           int    `json:"stages"`   // pp
	Tensor           int    `json:"tensor"`   // tp
	SequenceParallel bool   `json:"sequence_parallel,omitempty"`
	Batch            int    `json:"batch"`       // samples of a step over all replicas
	MicroBatch       int    `json:"micro_batch"` // samples of one replica's micro-batch
	Chunks           int    `json:"chunks"`      // virtual stages on each device
	Schedule         string `json:"schedule"`    // a family's name: 1f1b, afab, interleaved, zb-h1, ...
	Recompute        string `json:"recompute"`   // one of Recomputes
	Shard            string `json:"shard"`       // one of Shards
	Behind           bool   `json:"all_reduce_behind,omitempty"`
	Precision        string `json:"precision"`
	// GradientBytes is the size of a gradient's element while replicas sum it. If gradients are not sharded, replicas
	// also keep gradients in this size. 0 means that the precision decides.
	GradientBytes int `json:"gradient_bytes,omitempty"`
	// WeightBytes is the size of a weight's element while replicas gather it. It is 1 if weights that are used in fp8
	// are also gathered in fp8, as torchtitan can do (docs/float8.md there). 0 means that the precision decides.
	WeightBytes int `json:"weight_bytes,omitempty"`
	// WeightsAhead gathers the weights of zero1 and zero2 during the next step's first forward instead of after their
	// update, as Megatron-Core's --overlap-param-gather does.
	WeightsAhead bool `json:"weights_ahead,omitempty"`
	States       int  `json:"optimizer_states"`
	// Room is the largest number of micro-batches that a device may hold. If it is set, the order is the fastest one
	// that needs no more room: an order made from the stages' times, or that of a schedule with split backwards. 0
	// means the schedule's own order.
	Room int `json:"room,omitempty"`
	// NoFlush lets each stage begin its next step as soon as it has finished the present one (Qi et al., 2024, section
	// 4).
	NoFlush bool `json:"no_flush,omitempty"`
	// AsyncTensor overlaps the sums in a group with its matrix products, as far as the devices' Overlap allows.
	AsyncTensor bool `json:"async_tensor,omitempty"`
	// Blocks is the number of blocks of each virtual stage; nil divides them evenly. If that is not possible, the
	// stages at both ends get one less, or those in the middle get one more, because those at both ends have embedding
	// and loss.
	Blocks []int `json:"blocks,omitempty"`
}

// Recomputes lists what a backward may recompute: nothing, attention scores, blocks, or every second block.
// "operators" recomputes all memory-bound operators of a block and every second product (torchtitan's selective
// checkpointing by operator).
var Recomputes = []string{"none", "selective", "full", "alternate", "operators"}

// Shards lists what replicas may shard.
var Shards = []string{"none", "zero1", "zero2", "zero3"}

// Devices returns the number of devices that a shape uses.
func (s Shape) Devices() int { return s.Replicas * s.Stages * s.Tensor }

// MicroBatches returns the number of micro-batches in one replica's step.
func (s Shape) MicroBatches() int { return s.Batch / (s.Replicas * s.MicroBatch) }

// String returns a short description of the shape.
func (s Shape) String() string {
	micros := "micro-batches"
	if s.MicroBatches() == 1 {
		micros = "micro-batch"
	}
	text := fmt.Sprintf("dp %d x pp %d x tp %d, %d %s of %d", s.Replicas, s.Stages, s.Tensor, s.MicroBatches(), micros,
		s.MicroBatch)
	if s.Replicas > 1 {
		text += " a replica"
	}
	if s.Chunks > 1 {
		text += fmt.Sprintf(", %d chunks", s.Chunks)
	}
	if s.Stages > 1 {
		text += ", " + s.Schedule
	}
	if s.SequenceParallel {
		text += ", sequence parallel"
	}
	if s.Recompute != "none" {
		text += ", recompute " + s.Recompute
	}
	if s.Shard != "none" {
		text += ", " + s.Shard
	}
	return text
}

// filled returns the shape with defaults for its empty fields.
func (s Shape) filled() Shape {
	for _, n := range []*int{&s.Replicas, &s.Stages, &s.Tensor} {
		if *n == 0 {
			*n = 1
		}
	}
	if s.Schedule == "" {
		if s.Schedule = roles.Pipelines().Name; s.Chunks > 1 {
			s.Schedule = roles.Interleaving().Name
		}
	}
	f, err := family.Named(s.Schedule)
	if err == nil {
		s.Schedule = f.Name
	}
	if s.Chunks == 0 {
		if s.Chunks = 1; s.Stages > 1 && f.Chunks > 1 {
			s.Chunks = f.Chunks
		}
	}
	for text, usual := range map[*string]string{&s.Recompute: "none", &s.Shard: "none", &s.Precision: "f32"} {
		if *text == "" {
			*text = usual
		}
	}
	return s
}

// most is the largest number that a field of a shape may have. The product of any three of them does not overflow.
const most = 1 << 20

// bounded returns an error for a number below `least` or above `most`.
func bounded(what string, n, least int) error {
	if n < least || n > most {
		return fmt.Errorf("shape: %s is %d; give %d to %d", what, n, least, most)
	}
	return nil
}

// ordered returns an error for schedules that a shape cannot run: a step must end in a flush, and each virtual stage
// must be on one device.
func (s Shape) ordered() error {
	f, err := family.Named(s.Schedule)
	switch {
	case err != nil:
		return fmt.Errorf("shape: %w", err)
	case !f.AdmitsPolicy(schedule.Sync):
		return fmt.Errorf("shape: schedule %s keeps weights %s; a shape's steps end with one update of all, weights %s",
			f.Name, f.DefaultPolicy(), schedule.Sync)
	case f.Undivided:
		return fmt.Errorf("shape: schedule %s has the whole model on each device; a shape of 1 stage is that, whatever its "+
			"schedule", f.Name)
	case f.Streaming:
		return fmt.Errorf("shape: schedule %s is for devices that transfer while they compute; those of shapes are GPUs",
			f.Name)
	case s.Stages == 1:
		return nil
	case f.Chunks < 0 && s.Chunks < 2:
		return fmt.Errorf("shape: schedule %s is of several chunks on each device; chunks is %d, give 2 at least", f.Name,
			s.Chunks)
	}
	on := f.Placement(s.Stages, s.Chunks)
	if slices.ContainsFunc(on, func(workers []int) bool { return len(workers) != 1 }) {
		return fmt.Errorf("shape: schedule %s has stages on several workers; shapes have one pipeline, and replicas of it",
			f.Name)
	}
	if len(on) != s.Stages*s.Chunks {
		return fmt.Errorf("shape: schedule %s has %d virtual stages on %d devices; chunks is %d, give %d", f.Name, len(on),
			s.Stages, s.Chunks, max(1, len(on)/s.Stages))
	}
	return nil
}

// divides returns an error if a shape does not divide its batch into micro-batches. It also refuses more devices than
// the cluster has, groups that do not divide an innermost level, and chunks of one stage.
func (s Shape) divides(c *cluster.Cluster) error {
	if s.MicroBatch < 1 || s.Batch%(s.Replicas*s.MicroBatch) != 0 {
		return fmt.Errorf("shape: %d replicas of micro-batches of %d samples do not divide a batch of %d", s.Replicas,
			s.MicroBatch, s.Batch)
	}
	if n := s.Devices(); n > len(c.Devices) {
		return fmt.Errorf("shape: dp %d x pp %d x tp %d is %d devices; %s has %d", s.Replicas, s.Stages, s.Tensor, n, c.Name,
			len(c.Devices))
	}
	if inner := c.Levels[0]; inner.Size%s.Tensor != 0 {
		return fmt.Errorf("shape: tensor is %d, and level %s of %s has %d devices; a group is a number that divides them",
			s.Tensor, inner.Name, c.Name, inner.Size)
	}
	if s.Stages == 1 && s.Chunks > 1 {
		return fmt.Errorf("shape: chunks is %d of 1 stage, which has no pipeline; give more stages, or 1 chunk", s.Chunks)
	}
	return nil
}

// worded refuses a recompute, shard or precision that no shape can have.
func (s Shape) worded() error {
	for _, w := range []struct {
		what, has string
		of        []string
	}{{"recompute", s.Recompute, Recomputes}, {"shard", s.Shard, Shards}, {"precision", s.Precision, cluster.Precisions}} {
		if !slices.Contains(w.of, w.has) {
			return fmt.Errorf("shape: %s is %q; %s", w.what, w.has, registry.Instead(w.has, w.of))
		}
	}
	return nil
}

// check returns an error for a shape that contradicts itself or does not fit the cluster.
func (s Shape) check(c *cluster.Cluster) error {
	for _, n := range []struct {
		what string
		n    int
	}{{"replicas", s.Replicas}, {"stages", s.Stages}, {"tensor", s.Tensor}, {"chunks", s.Chunks}, {"batch", s.Batch},
		{"micro_batch", s.MicroBatch}} {
		if err := bounded(n.what, n.n, 1); err != nil {
			return err
		}
	}
	if err := s.worded(); err != nil {
		return err
	}
	if err := s.divides(c); err != nil {
		return err
	}
	if err := s.ordered(); err != nil {
		return err
	}
	for _, d := range c.Devices[:s.Devices()] {
		if d != c.Devices[0] {
			return fmt.Errorf("shape: %s has device types %s and %s; shapes are of one", c.Name, c.Devices[0], d)
		}
	}
	t := c.DeviceTypes[c.Devices[0]]
	if t.Kernels == nil {
		return fmt.Errorf("shape: device type %s has no kernels, which shapes are predicted by: build it on one that has, "+
			"like {like: a100-80gb}; there are %s", c.Devices[0], strings.Join(cluster.Types(), ", "))
	}
	if t.Group != nil && s.Tensor > 1 {
		return fmt.Errorf("shape: device type %s is a group of %d already; leave tensor out of the shape or of the file",
			c.Devices[0], t.Group.Size)
	}
	if s.SequenceParallel && s.Tensor == 1 && t.Group == nil {
		return fmt.Errorf("shape: sequence_parallel divides positions over a tensor-parallel group; tensor is 1")
	}
	return nil
}

// Device returns the type of one device of the shape's pipelines. With Tensor over 1 that device is a group.
func (s Shape) Device(c *cluster.Cluster) cluster.DeviceType {
	t := c.DeviceTypes[c.Devices[0]]
	if s.Tensor > 1 {
		l := c.Levels[c.LevelOf(0, s.Tensor-1)]
		bandwidth := l.CollectiveBandwidthBytesPerSecond
		if bandwidth == 0 {
			bandwidth = l.BandwidthBytesPerSecond
		}
		t.Group = &cluster.Group{Size: s.Tensor, SequenceParallel: s.SequenceParallel,
			BandwidthBytesPerSecond: bandwidth, LatencyS: l.LatencyS, Protocols: l.Protocols}
	}
	return t
}
