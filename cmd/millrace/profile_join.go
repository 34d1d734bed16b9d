package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/profile"
)

func profileJoinCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "join [NAME=]FILE [NAME=]FILE ...", Short: "Join profiles of one model on several device types",
		Long: `join makes one profile of several, each measured on another type of host, so that a plan can use all of
them. The cluster file names the same device types.

A profile that was measured has its device type called cpu; NAME= calls it otherwise.`,
		Example: "  millrace profile join fast=a.json slow=b.json -o both.json\n" +
			"  millrace plan --model gpt --cluster hosts.yaml --profile both.json",
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if output == "" {
				return cli.BadInput(fmt.Errorf("--out names the file to write; give one, as in -o both.json"))
			}
			var parts []profile.Part
			for _, arg := range args {
				part, err := readPart(arg)
				if err != nil {
					return cli.BadInput(err)
				}
				parts = append(parts, part)
			}
			joined, err := profile.Join(parts...)
			if err != nil {
				return cli.BadInput(err)
			}
			if err := joined.Write(output); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s on %s: wrote %s\n", joined.Model, strings.Join(joined.DeviceTypes(), ", "), output)
			return nil
		},
	}
	cli.Output(c, &output, "write the joined profile to this file")
	return c
}

// readPart reads FILE or NAME=FILE. What is a file is a FILE, whatever its name.
func readPart(arg string) (profile.Part, error) {
	name, file, named := strings.Cut(arg, "=")
	if _, err := os.Stat(arg); err == nil || !named {
		name, file, named = "", arg, false
	}
	if named && name == "" {
		return profile.Part{}, fmt.Errorf("%q names no device type in front of =; give one, as in fast=%s", arg, file)
	}
	p, err := profile.Read(file)
	if err == nil && named {
		if p, err = p.Renamed(name); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return profile.Part{Name: file, Profile: p}, err
}
