package run

import (
	"fmt"
)

// Check says what Train would refuse, the checkpoint to go on from included, without
// running or writing anything.
func (c Config) Check() error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	if _, err := ProgramOf(c.Plan, c.Model, c.Clip > 0, 1); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if c.Resume == "" {
		return nil
	}
	from, err := openCheckpoint(c)
	if err != nil {
		return err
	}
	return from.Close()
}
