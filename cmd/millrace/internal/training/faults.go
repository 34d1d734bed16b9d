package training

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
)

// faultOf adds to an error what is left of the run, if the run diverged or the disk was full. Such errors are
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

// isFull reports whether an error means that the disk or the user's quota was full, or that a file reached its size
// limit.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
