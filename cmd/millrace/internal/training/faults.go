package training

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
)

// faultOf adds to the error of a diverged run, or of one that a full disk ended, what is left of the run. Both are
// failures, not bad input.
func faultOf(err error, saved string) error {
	diverged := errors.Is(err, process.ErrNotFinite) || errors.Is(err, optim.ErrRange)
	switch full := isFull(err); {
	case !diverged && !full:
		return err
	case saved != "":
		return fmt.Errorf("%w; the last checkpoint is %s", err, saved)
	case diverged:
		return fmt.Errorf("%w; no checkpoint was saved before it (--save-every)", err)
	default:
		return fmt.Errorf("%w; no checkpoint was saved before it: make room and begin again", err)
	}
}

// isFull says whether a disk, or what a user may have of it, was full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
