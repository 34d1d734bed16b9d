package plan

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// ErrMemory is matched by MemoryErrors, the errors of planners that find no plan within the devices' memory.
var ErrMemory = errors.New("plan: no plan fits the memory of the devices")

// MemoryError says that none of a planner's plans fits the devices, by the planner's own count of memory. It matches
// ErrMemory. It describes the plan that needs the least memory, names the device whose limit that plan exceeds most,
// and says by how much.
type MemoryError struct {
	Planner       string
	Counts        string // what the planner counts as memory
	SmallestBytes int64  // least memory per device with which the planner has a plan
	Among         string // the plans that were searched, like "those cut at 384 of its 1495 states"; "" means all

	Stages      int    // number of stages of the plan that needs SmallestBytes
	Stage       int    // the stage that exceeds its device most
	First, Last string // names of that stage's first and last layer
	Device      int
	NeedBytes   int64
	LimitBytes  int64 // memory of Device
}

func (e *MemoryError) Error() string {
	what := "the whole model"
	switch {
	case e.Stages > 1 && e.First == e.Last:
		what = fmt.Sprintf("stage %d of %d, layer %s,", e.Stage, e.Stages, e.First)
	case e.Stages > 1:
		what = fmt.Sprintf("stage %d of %d, layers %s to %s,", e.Stage, e.Stages, e.First, e.Last)
	}
	among := ""
	if e.Among != "" {
		among = " of " + e.Among
	}
	return fmt.Sprintf("plan: %s: no plan fits %s on every device: of the plan that needs least%s, %s takes %s on "+
		"device %d, %s more than its %s; with %s (%dB) on each there is a plan, counting %s",
		e.Planner, terminal.Bytes(e.LimitBytes), among, what, terminal.Bytes(e.NeedBytes), e.Device,
		terminal.Bytes(e.NeedBytes-e.LimitBytes), terminal.Bytes(e.LimitBytes),
		terminal.Bytes(e.SmallestBytes), e.SmallestBytes, e.Counts)
}

func (e *MemoryError) Is(target error) bool { return target == ErrMemory }

// Held is the memory that a run of layers takes on each of its devices.
type Held struct {
	First, Last string
	Devices     []int
	Bytes       int64
}

// Refusal returns the MemoryError for a plan of these stages. `smallest` is the least limit, in bytes, with which some
// plan would fit. `limit` returns a device's memory in bytes; 0 means no limit.
func Refusal(planner, counts string, smallest int64, limit func(device int) int64, stages []Held) *MemoryError {
	e := &MemoryError{Planner: planner, Counts: counts, SmallestBytes: smallest, Stages: len(stages), Stage: -1}
	for i, h := range stages {
		for _, d := range h.Devices {
			if has := limit(d); has > 0 && (e.Stage < 0 || h.Bytes-has > e.NeedBytes-e.LimitBytes) {
				e.Stage, e.First, e.Last, e.Device, e.NeedBytes, e.LimitBytes = i, h.First, h.Last, d, h.Bytes, has
			}
		}
	}
	return e
}
