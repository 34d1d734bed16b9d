package run

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"sync"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/blocking"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/shape"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// carrierVariable is an environment variable. It names the carrier of all runs in these tests whose Config sets none;
// `make soak` sets the variable. Without it, a digest of the plan and some settings chooses the carrier of such a run.
// About one run in ten uses each carrier of `others`.
const carrierVariable = "MILLRACE_CARRIER"

var others = map[string]func(workers int) ([]wire.Carrier, error){
	"pipe": pipe.New, "blocking": blocking.New, "tcp": tcp.New,
}

// carried counts runs by their carrier.
var carried = struct {
	sync.Mutex
	runs map[string]int
}{runs: map[string]int{}}

// carrierOf returns the name of the carrier for a run whose Config sets none; "" means in process.
func carrierOf(c *Config) string {
	if name := os.Getenv(carrierVariable); name != "" {
		return name
	}
	plan, err := json.Marshal(c.Plan)
	if err != nil {
		panic(err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d %d %v", plan, c.Train.Seed, c.Train.Steps, c.Train.Optimizer)
	return map[uint32]string{0: "pipe", 1: "blocking", 2: "tcp"}[h.Sum32()%10]
}

func init() {
	usual = func(c *Config) func(workers int) ([]wire.Carrier, error) {
		name := carrierOf(c)
		carried.Lock()
		defer carried.Unlock()
		carried.runs[name]++
		if open := others[name]; open != nil {
			return open
		}
		return wire.InProcess
	}
}

// inTransit returns the bytes of sent messages that a worker may still hold; 0 if the receiver takes over the memory.
func inTransit(c *Config, messages int, bytes int64) int64 {
	if others[carrierOf(c)] == nil {
		return 0
	}
	return int64(messages) * bytes
}

// cut is a carrier that loses messages. Once `lost` selects a transfer on an edge, neither that transfer nor any later
// message on the edge is sent.
type cut struct {
	wire.Carrier
	lost func(schedule.Instruction) bool

	mu   sync.Mutex
	dead map[[2]int]bool // edges that lose all further messages, by receiver and ID
	kept []func(error)
}

// cutting returns in-process carriers that lose transfers.
func cutting(lost func(schedule.Instruction) bool) func(workers int) ([]wire.Carrier, error) {
	return func(workers int) ([]wire.Carrier, error) {
		all, err := wire.InProcess(workers)
		for i, c := range all {
			all[i] = &cut{Carrier: c, lost: lost, dead: map[[2]int]bool{}}
		}
		return all, err
	}
}

// losing returns carriers that lose every activation and gradient.
var losing = cutting(func(schedule.Instruction) bool { return true })

func (c *cut) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	at := [2]int{e.To, int(e.ID)}
	c.mu.Lock()
	if e.Class == wire.Transfers {
		if h, begins := frames[0].Header(); begins && c.lost(schedule.Key(h.Key).Instruction()) {
			c.dead[at] = true
		}
	}
	if c.dead[at] {
		c.kept = append(c.kept, done)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.Carrier.Send(epoch, e, n, frames, done)
}

func (c *cut) end(err error) {
	c.mu.Lock()
	kept := c.kept
	c.kept = nil
	c.mu.Unlock()
	for _, done := range kept {
		done(err)
	}
}

func (c *cut) Fail(rank int, err error) {
	c.end(err)
	c.Carrier.Fail(rank, err)
}

func (c *cut) Close() error {
	c.end(wire.ErrClosed)
	return c.Carrier.Close()
}

// shaped returns in-process carriers with simulated links.
func shaped(links func(from, to int) shape.Link) func(workers int) ([]wire.Carrier, error) {
	return func(workers int) ([]wire.Carrier, error) {
		all, err := wire.InProcess(workers)
		if err != nil {
			return nil, err
		}
		return shape.New(all, links)
	}
}
