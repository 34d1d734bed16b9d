package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/serving"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report/live"
)

func serveCommand() *cobra.Command {
	var address, token string
	c := &cobra.Command{
		Use: "serve RUNS...", Short: "Show runs in a browser, side by side, while they go on and afterwards",
		Long: `serve shows runs in a browser: each as it goes on, and several side by side.

A run is the folder that train --out named. A folder of such folders is all of them, and runs that turn up in it
later. Everything is read from the folders' files, so that runs of other processes are followed too. It ends
with Ctrl-C. See docs/live.md.`,
		Example: "  millrace serve runs\n  millrace serve runs/gpt runs/gpt-2bw --address :8080",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			shelf, err := live.New(args)
			if err != nil {
				return cli.BadInput(err)
			}
			server, err := serving.Listen("pages", "--address", address, token)
			if err != nil {
				return errors.Join(err, shelf.Close())
			}
			defer server.Close()
			defer shelf.Close() // first, so that pages learn of the end
			cli.Keeps(c.Context(), func() string { return "" })
			if _, err := fmt.Fprintf(c.OutOrStdout(), "live %s\n", server.URL()); err != nil {
				return err
			}
			found := terminal.Count(shelf.Runs(), "run")
			if shelf.Runs() == 0 {
				found = "no run is there yet; one is shown as soon as its folder turns up"
			}
			fmt.Fprintf(c.ErrOrStderr(), "millrace: %s; Ctrl-C ends this\n", found)
			ended := make(chan error, 1)
			server.Serve(shelf.Handler(), func(err error) { ended <- err })
			select {
			case err := <-ended:
				return err
			case <-c.Context().Done():
				return context.Cause(c.Context())
			}
		},
	}
	c.Flags().StringVar(&address, "address", ":0", "where: HOST:PORT, or :PORT of this machine alone (0: any free one)")
	c.Flags().StringVar(&token, "token-file", "", "file with the token that browsers are asked for")
	return c
}
