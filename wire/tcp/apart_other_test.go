//go:build !linux

package tcp

import (
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// apart does nothing, since no process can read another here.
func apart() error { return nil }

// reads returns false: no process can read another here.
func reads(*testing.T) (out, in bool) { return false, false }

// loans does nothing here.
func (task) loans([]wire.Carrier, int) (string, error) { return "", nil }
