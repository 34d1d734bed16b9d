package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// TestJoinedProfiles: the costs of a stage, updates included, are those of its own device type. The other measured
// times (DispatchS, SendS, ReceiveS, PaceSpread) are means over the plan's devices.
func TestJoinedProfiles(t *testing.T) {
	slow := chain()
	slow.Transfer = &profile.Transfer{BandwidthBytesPerSecond: 1, DispatchS: 0.75, SendS: 2, ReceiveS: 4}
	slow.PaceSpread = 0.5
	for l := range slow.Layers {
		slow.Layers[l].UpdateS = 3
		for i := range slow.Layers[l].Costs {
			slow.Layers[l].Costs[i].ForwardS *= 10
		}
	}
	fast := chain()
	fast.Model, slow.Model = "m", "m"
	fast.Transfer.BandwidthBytesPerSecond = 1
	slow, err := slow.Renamed("slow")
	if err != nil {
		t.Fatal(err)
	}
	both, err := profile.Join(profile.Part{Name: "fast", Profile: fast}, profile.Part{Name: "slow", Profile: slow})
	if err != nil {
		t.Fatal(err)
	}
	hosts := local(2)
	hosts.Devices = []string{"slow", "cpu"}
	c, err := CostsOf(both, hosts, twoStages())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.Stages[0][0], c.Stages[1][0]; a.ForwardS != 30 || b.ForwardS != 7 || a.UpdateS != 6 || b.UpdateS != 1 {
		t.Errorf("stage 0 takes %v and updates in %v, stage 1 %v and %v", a.ForwardS, a.UpdateS, b.ForwardS, b.UpdateS)
	}
	if n := c.Noise; n.DispatchS != 0.5 || n.PaceSpread != 0.25 || c.SendS != 1 || c.ReceiveS != 2 {
		t.Errorf("dispatch %v, pace %v, send %v, receive %v", n.DispatchS, n.PaceSpread, c.SendS, c.ReceiveS)
	}
}

// TestPoolsAreOfNodes: workers share the cores of their device's node, and nodes may have different numbers of
// cores.
func TestPoolsAreOfNodes(t *testing.T) {
	hosts, err := cluster.Parse(strings.NewReader(`
name: unequal
device_types: {cpu: {}}
device: cpu
cores: 2
nodes: [{count: 2}, {cores: 1}]
levels:
  - {name: host, size: 3, bandwidth: 1GB/s, latency: 1us}
  - {name: network, size: 3, bandwidth: 1GB/s, latency: 1us}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := Pools(hosts, []int{0, 1, 2, 4, 6, 8})
	want := machine.Pools{{Cores: 2, Workers: []int{0, 1, 2}}, {Cores: 2, Workers: []int{3}},
		{Cores: 1, Workers: []int{4, 5}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if all := hosts.AllCores(); all != 5 {
		t.Errorf("%d cores in all; want 2, 2 and 1", all)
	}
	if scarce := got.Scarce(6); len(scarce) != 2 || scarce[1].Cores != 1 {
		t.Errorf("pools in which workers wait: %v", scarce)
	}
	hosts.CoreGroup = 9
	if got := Pools(hosts, []int{0, 4, 8}); len(got) != 1 || got[0].Cores != 2 || hosts.AllCores() != 2 {
		t.Errorf("one machine behind such links has pools %v and %d cores", got, hosts.AllCores())
	}
	if _, err := cluster.Parse(strings.NewReader(`
name: none
device_types: {cpu: {}}
device: cpu
nodes: [{cores: -1}]
levels: [{name: host, size: 1, bandwidth: 1GB/s}]
`)); err == nil || !strings.Contains(err.Error(), "node 0: cores is -1") {
		t.Errorf("got %v", err)
	}
}
