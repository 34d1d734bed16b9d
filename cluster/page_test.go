package cluster

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestTheClustersPageIsComplete: docs/clusters.md names every key of a cluster file and every preset, and its example
// can be read.
func TestTheClustersPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, of := range []any{file{}, fileDeviceType{}, fileNode{}, fileLevel{}, fileFPGA{}, fileTransceiver{},
		fileKernels{}, fileRate{}, fileGroup{}, fileProtocol{}} {
		for i := range reflect.TypeOf(of).NumField() {
			key := reflect.TypeOf(of).Field(i).Tag.Get("yaml")
			if !strings.Contains(page, "`"+key) && !strings.Contains(page, "    "+key+":") {
				t.Errorf("docs/clusters.md does not say what %q of a %T is", key, of)
			}
		}
	}
	for _, name := range Presets() {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/clusters.md does not name the preset %s", name)
		}
	}
	for _, name := range Types() {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/clusters.md does not name the device type %s", name)
		}
	}
	_, example, _ := strings.Cut(page, "\n    name: ")
	example, _, _ = strings.Cut("    name: "+example, "\n\n")
	if c, err := Parse(strings.NewReader(strings.ReplaceAll(example, "\n    ", "\n")[4:])); err != nil ||
		len(c.Devices) != 8 {
		t.Errorf("the example is %v, %v", c, err)
	}
}
