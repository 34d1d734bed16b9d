package bapipe

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage rarely, because an experiment simulates hundreds of small Programs and keeps none of
// them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
