package together

import (
	"context"
	"errors"
	"strconv"
	"syscall"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/run/control"
)

// ExitStopped is the code of a process that ends because another one was told to.
const ExitStopped = 128 + int(syscall.SIGTERM)

// input is why processes have not met, with its exit code.
func input(ctx context.Context, err error) error {
	var refused *rendezvous.Refused
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &refused) && refused.Retry:
		return cli.Exit(launch.LostPeer, err)
	}
	return cli.BadInput(err)
}

// class tells the other processes what to end with for an error.
func class(err error) string { return strconv.Itoa(cli.CodeOf(err)) }

// Exit gives an error of a setup, or of a run of several processes, its exit code.
func Exit(err error) error {
	var said *setup.Error
	var lost *control.LostError
	var stopped *setup.StoppedError
	switch {
	case errors.As(err, &said):
		code, wrong := strconv.Atoi(said.Class)
		if wrong != nil {
			code = cli.ExitFailed
		}
		return cli.Exit(code, err)
	case errors.As(err, &stopped):
		return cli.Exit(ExitStopped, err)
	case errors.As(err, &lost):
		return cli.Exit(launch.LostPeer, err)
	}
	return err
}
