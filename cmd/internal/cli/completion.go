package cli

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/internal/registry"
)

//go:embed completion.bash
var bashWithoutLibrary string

// addCompletion adds the verb that prints a script for a shell's completion.
func addCompletion(root *cobra.Command) {
	name := root.Name()
	var bare bool
	c := &cobra.Command{
		Use: "completion SHELL", Short: "Print what completes verbs, flags and values in bash, zsh, fish or PowerShell",
		Long: `completion prints a script that has a shell complete verbs, flags and their values: names, files of
the right kind, layers of the model, checkpoints of a run. Source it in the shell that is open; for
those to come put the same line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.`,
		Example: "  source <(" + name + " completion bash)\n  source <(" + name + " completion zsh)\n  " + name +
			" completion fish | source",
		Args: cobra.ExactArgs(1), ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			var script bytes.Buffer
			if err := writeCompletion(&script, root, args[0], !bare); err != nil {
				return err
			}
			_, err := c.OutOrStdout().Write(script.Bytes())
			return err
		},
	}
	c.Flags().BoolVar(&bare, "no-descriptions", false, "offer values without saying what they are")
	root.AddCommand(c)
}

var shells = []string{"bash", "zsh", "fish", "powershell"}

func writeCompletion(w io.Writer, root *cobra.Command, shell string, described bool) error {
	var script bytes.Buffer
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(&script, described)
	case "zsh":
		if described {
			err = root.GenZshCompletion(&script)
		} else {
			err = root.GenZshCompletionNoDesc(&script)
		}
	case "fish":
		err = root.GenFishCompletion(&script, described)
	case "powershell":
		if described {
			err = root.GenPowerShellCompletionWithDesc(&script)
		} else {
			err = root.GenPowerShellCompletion(&script)
		}
	default:
		return BadInput(fmt.Errorf("there is no completion for %q; %s", shell, registry.Instead(shell, shells)))
	}
	if err != nil {
		return fmt.Errorf("completion: %w", err)
	}
	text := script.String()
	switch shell {
	case "bash":
		own := "__" + strings.ReplaceAll(root.Name(), "-", "_") + "_"
		text = strings.NewReplacer("_get_comp_words_by_ref", own+"words", "_filedir", own+"paths").Replace(text) +
			strings.ReplaceAll(bashWithoutLibrary, "__PROGRAM_", own)
	case "zsh": // zsh recognises completion files by this first line
		head, rest, _ := strings.Cut(text, "\n")
		text = head + "\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n" + rest
	}
	_, err = io.WriteString(w, text)
	return err
}
