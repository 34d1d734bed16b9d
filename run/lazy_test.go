package run

import (
	"hash/fnv"
	"os"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
)

// lateness is how late devices are in tests.
func lateness(seed uint64) ref.Lateness {
	return ref.Lateness{Seed: seed, OneIn: 40, Most: 100 * time.Microsecond}
}

// late is the engine of a run that a test makes: of every tenth of those on the engine in Go, and with
// MILLRACE_LATE set of all of them, one with late devices, with which everything that a test says of a run must
// hold as well. Twins stay on the prompt one.
func late(t testing.TB, c Config) Config {
	if _, prompt := c.Engine.(*ref.Engine); !prompt {
		return c
	}
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	seed := h.Sum64() + uint64(c.Seed) + uint64(len(c.Plan.Stages))
	if seed%10 != 0 && os.Getenv("MILLRACE_LATE") == "" {
		return c
	}
	c.Engine = ref.Lazy(lateness(seed))
	if c.Cores == 0 {
		c.Ahead = int(seed / 10 % 3)
	}
	return c
}

var _ engine.Engine = (*ref.Engine)(nil)
