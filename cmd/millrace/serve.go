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
		Long: `serve shows runs in a browser: each run with its progress, and several side by side.

RUNS are folders that train --out named, or folders of such folders, which may get more runs later. serve reads the
files in these folders, so it can show the runs of any process. Ctrl-C ends it. See docs/live.md.`,
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
			defer shelf.Close() // closed first, so that pages learn of the end
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
	c.Flags().StringVar(&address, "address", ":0", "HOST:PORT, or :PORT for this machine only; port 0 is any free one")
	c.Flags().StringVar(&token, "token-file", "", "file with the token that browsers must give")
	return c
}
