package listing

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cluster show prints everything that a file says about how links carry messages and collectives: half sizes,
// contention and protocols. JSON has the same numbers in seconds and bytes.
func TestClusterShowPrintsHowLinksCarry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(path, []byte(`name: two
device_types: {d: {memory: 1GB}}
device: d
levels:
  - {name: node, size: 8, bandwidth: 300GB/s, latency: 3us, half_size: 256KiB, protocols: {
      LL: {start: 6.6us, latency: 0.6us, share: 0.25},
      Simple: {start: 8.4us, latency: 3.4us, tree_latency: 28us, share: 1}}}
  - {name: fabric, size: 2, bandwidth: 25GB/s, latency: 10us, contention: true}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	show := func(args ...string) []byte {
		var out bytes.Buffer
		c := ClusterCommand()
		c.SetArgs(append([]string{"show", path}, args...))
		c.SetOut(&out)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	text := strings.Join(strings.Fields(string(show())), " ")
	for _, want := range []string{"half of the bandwidth at 256 KiB", "contention at ports",
		"protocols of name start latency in a tree bandwidth", "node LL 6.60 µs 600 ns 600 ns 25 %",
		"node Simple 8.40 µs 3.40 µs 28.0 µs 100 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	var got listedCluster
	if err := json.Unmarshal(show("--json"), &got); err != nil {
		t.Fatal(err)
	}
	node, fabric := got.Levels[0], got.Levels[1]
	if node.HalfSizeBytes != 262144 || node.Contention || !fabric.Contention || fabric.Protocols != nil ||
		!slices.EqualFunc(node.Protocols, []protocol{{"LL", 6.6e-6, 0.6e-6, 0, 0.25}, {"Simple", 8.4e-6, 3.4e-6, 28e-6, 1}},
			func(a, b protocol) bool {
				near := func(a, b float64) bool { return max(a, b)-min(a, b) < 1e-15 }
				return a.Name == b.Name && near(a.StartS, b.StartS) && near(a.LatencyS, b.LatencyS) &&
					near(a.TreeLatencyS, b.TreeLatencyS) && a.Share == b.Share
			}) {
		t.Errorf("%+v", got.Levels)
	}
}

// cluster show prints every type of device in a group whose devices differ.
func TestClusterShowPrintsMixedGroups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mixed.yaml")
	if err := os.WriteFile(path, []byte(`name: mixed
device_types: {big: {memory: 8GiB}, small: {memory: 2GiB}}
nodes: [{devices: [big, small, small], bandwidth: 4GB/s}, {device: small, memory: 1GiB}]
levels: [{name: node, size: 3, bandwidth: 6GB/s}, {name: net, size: 2, bandwidth: 1GB/s}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := ClusterCommand()
	c.SetArgs([]string{"show", path})
	c.SetOut(&out)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	const want = "node 0 0: big 8.00 GiB 4.00 GB/s 1 to 2: small 2.00 GiB node 1 3 to 5: small 1.00 GiB 6.00 GB/s"
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
