package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/millrace-ml/millrace/run"
)

// faultOf marks what ended a run as bad input where the user can mend it: numbers that are no
// longer finite, which other settings keep so, and a disk that is full. Of a run that has
// diverged it names the checkpoint to go on from.
func faultOf(err error, saved string) error {
	switch {
	case errors.Is(err, run.ErrNotFinite):
		if saved == "" {
			return badInput(fmt.Errorf("%w; no checkpoint was saved before it (--save-every)", err))
		}
		return badInput(fmt.Errorf("%w; the last checkpoint is %s", err, saved))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return badInput(err)
	}
	return err
}
