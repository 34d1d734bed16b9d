//go:build !linux

package tcp

import (
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// Nobody reads another here.
func apart() error { return nil }

// reads says that nobody reads.
func reads(*testing.T) (out, in bool) { return false, false }

// loans are none.
func (task) loans([]wire.Carrier, int) (string, error) { return "", nil }
