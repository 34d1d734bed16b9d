package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// named returns the YAML of a small model. The names stand in double quotes, where YAML replaces escapes such as \e.
func named(name, layer string) string {
	return fmt.Sprintf(`name: "%s"
inputs: [{name: input, dtype: float, shape: [4]}, {name: target, dtype: int, shape: []}]
layers:
  - {name: "%s", kind: dense, width: 2, from: [input]}
  - {name: loss, kind: cross_entropy, from: ["%s", target]}
`, name, layer, layer)
}

// Names of models, layers and devices from files cannot control the terminal, neither in output nor in errors.
func TestNamesAreNotObeyed(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	for file, text := range map[string]string{
		"model.yaml":  named(`ev\e[2Jil`, "a"),
		"layer.yaml":  named("m", `a\e]0;title\a`),
		"turned.yaml": named(`abc\u202edef`, "a"),
		"long.yaml":   named(strings.Repeat("n", 201), "a"),
		"raw.yaml":    named("m\x1b[2J", "a") + "nonsense: \x1b[2J\u202e\n",
		"cluster.yaml": "name: \"c\\e[2J\"\ndevice_types: {d: {}}\ndevice: d\nlevels: [{name: l, size: 2, bandwidth: " +
			"1GB/s, latency: 1us}]\n",
		"p.json":    `{"version": 1, "model": "\u001b[2J\u202e"}`,
		"plan.json": `{"version": 1, "model": "\u001b[2J\u202e"}`,
	} {
		if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := "plan --cluster dapple-b:2 --batch 4 --model " + file
		switch file {
		case "cluster.yaml":
			args = "plan --model mlp --batch 4 --cluster " + file
		case "p.json":
			args = "plan --cluster dapple-b:2 --profile " + file
		case "plan.json":
			args = "export --to deepspeed --plan " + file
		}
		out := p.Run(t, strings.Fields(args), false)
		if !strings.HasSuffix(out, "exit 2\n") || strings.ContainsAny(out, "\x1b\a\u202e\u009b") {
			t.Errorf("%s: %q", file, out)
		}
	}
	// A path may contain control characters, too. The path of an existing file is printed.
	if err := os.Mkdir(filepath.Join(p.Dir, "\x1b[2J"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "\x1b[2J", "m.yaml"), []byte(named("m", "a")), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"plan", "--cluster", "dapple-b:2", "--batch", "4", "--model", "\x1b[2J/m.yaml"},
		{"report", "\x1b[2J"}, {"\x1b[2J"}, {"plan", "--\x1b[2J"}} {
		if out := p.Run(t, args, false); strings.Contains(out, "\x1b") {
			t.Errorf("%q: %q", args, out)
		}
	}
}
