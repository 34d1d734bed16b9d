package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// TestFiles compares whole files with testdata/files, where a reviewer can read them.
func TestFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/files", func(t *testing.T, d *datadriven.TestData) string {
		s := Spec{Name: "gpt", Command: strings.Fields("millrace train --job /etc/millrace/job.yaml --resume /data/run " +
			"--out /data/run"),
			Cores: 4, MemoryBytes: 8 << 30, Limit: 12 * time.Hour, Restarts: 3}
		for range 2 {
			s.Hosts = append(s.Hosts, Host{Processes: 1})
		}
		switch d.Cmd {
		case "slurm":
			s.Hosts[0].Processes, s.Hosts[1].Processes, s.TokenFile = 2, 2, "/home/u/.config/millrace/token"
		case "mpirun":
			s.Cores, s.MemoryBytes, s.Limit = 0, 0, 0
			s.Hosts = []Host{{Name: "a", Processes: 2}, {Name: "b", Processes: 2}}
		default:
			s.Image, s.Claim, s.MountAt = "registry.example/millrace:1", "data", "/data"
			s.Files = map[string]string{"job.yaml": "model: gpt\nbatch: 32\n"}
		}
		text, err := Write(d.Cmd, s)
		if err != nil {
			return "error: " + err.Error()
		}
		return text
	})
}

func TestWhatNoFileSays(t *testing.T) {
	for _, c := range []struct {
		kind   string
		change func(*Spec)
		want   string
	}{
		{"pbs", func(*Spec) {}, `there is no kind "pbs"; there are slurm, mpirun, k8s, jobset, trainjob`},
		{"k8s", func(s *Spec) { s.Name = "GPT" }, `name is "GPT"; give 1 to 46 lower-case letters`},
		{"k8s", func(s *Spec) { s.Name = strings.Repeat("a", 47) }, "give 1 to 46"},
		{"slurm", func(s *Spec) { s.Name = "a\nb" }, `name is "a\nb"`},
		{"k8s", func(s *Spec) { s.Command = nil }, "there is no command"},
		{"k8s", func(s *Spec) { s.Hosts = nil }, "there are no hosts"},
		{"k8s", func(s *Spec) { s.Hosts[0].Processes = 0 }, "has 0 processes"},
		{"k8s", func(s *Spec) { s.Hosts[0].Processes = 1 << 30 }, "and 65536 on all at most"},
		{"k8s", func(s *Spec) { s.Hosts[0].Processes = 2 }, "a host of the run has 2 processes, and pods are placed one " +
			"by one"},
		{"jobset", func(s *Spec) { s.Image = "" }, "there is no image"},
		{"trainjob", func(s *Spec) { s.Claim = "Data" }, `"Data" is no name in Kubernetes`},
		{"k8s", func(s *Spec) { s.MountAt = "" }, "give both or neither"},
		{"k8s", func(s *Spec) { s.Files["../x"] = "" }, `file "../x" has no plain name`},
		{"k8s", func(s *Spec) { s.Files[strings.Repeat("x", 300)] = "" }, "has no plain name"},
		{"k8s", func(s *Spec) { s.Selector["a b"] = "" }, `"a b"="" is no label of a node`},
		{"k8s", func(s *Spec) { s.Selector["a"] = "-" }, `"a"="-" is no label of a node`},
		{"k8s", func(s *Spec) { s.Files["x"] = strings.Repeat("x", 900_000) }, "at most 900000"},
		{"k8s", func(s *Spec) { s.Command = append(s.Command, "--token", "abc") },
			"the command has --token: anyone on a host can read"},
		{"k8s", func(s *Spec) { s.Command = append(s.Command, "--token=abc") }, "the command has --token: anyone"},
		{"k8s", func(s *Spec) { s.Command = append(s.Command, "a\nb") }, "give text of one line"},
		{"k8s", func(s *Spec) { s.Command = append(s.Command, "\xff") }, "give text of one line"},
		{"k8s", func(s *Spec) { s.Command = append(s.Command, strings.Repeat("a", 1<<16)) }, "at most 65536"},
		{"k8s", func(s *Spec) { s.Restarts = -1 }, "restarts is -1"},
		{"k8s", func(s *Spec) { s.Grace = time.Millisecond }, "grace is 1ms"},
		{"k8s", func(s *Spec) { s.Limit = time.Minute }, "the time limit is 1m0s; it must be over the grace of 1m30s"},
		{"k8s", func(s *Spec) { s.Cores = -1 }, "none is below 0"},
		{"k8s", func(s *Spec) { s.Hosts[0].Name = "a b" }, `host "a b" is no name`},
		{"k8s", func(s *Spec) { s.Hosts[0].Name = "a" }, "name all or none"},
		{"slurm", func(s *Spec) {
			*s = script(2, "true")
			s.Hosts = []Host{{Processes: 1}, {Processes: 1, Device: "slow"}}
		},
			"of type slow, and any host may be taken for either; name the hosts"},
		{"k8s", func(s *Spec) { s.Hosts[1].Device = "slow" }, "of type slow, and all pods of a run have one node selector"},
		{"k8s", func(s *Spec) { s.Hosts[1].Device, s.Hosts[0].Name, s.Hosts[1].Name = "slow", "a", "b" },
			"start unequal hosts by slurm or mpirun"},
		{"k8s", func(s *Spec) { s.Hosts[0].Name, s.Hosts[1].Name = "a", "b" }, `host "a" has a name, and pods go to any`},
		{"slurm", func(*Spec) {}, "are for Kubernetes"},
		{"mpirun", func(*Spec) {}, "are for Kubernetes"},
		{"mpirun", func(s *Spec) { *s = script(2, "true"); s.Cores = 2 }, "mpirun gives out no cores"},
		{"mpirun", func(s *Spec) { *s = script(2, "true"); s.MPI = "lam" }, `MPI is "lam"; it is openmpi or mpich`},
		{"mpirun", func(s *Spec) { *s = script(2, "true"); s.Hosts = []Host{{Processes: 1}, {Processes: 2}} },
			"name the hosts"},
		{"slurm", func(s *Spec) { *s = script(2, "true"); s.MPI = OpenMPI }, "srun starts the processes"},
	} {
		s := pods(2)
		c.change(&s)
		text, err := Write(c.kind, s)
		if err == nil || !strings.Contains(err.Error(), c.want) || text != "" {
			t.Errorf("%s: got %v, want %q", c.kind, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "abc") {
			t.Errorf("%v tells the token", err)
		}
	}
}

// Place puts the processes of a run on the hosts of the plan's workers.
func TestPlace(t *testing.T) {
	two, err := cluster.Parse(strings.NewReader(`
name: two
device_types: {cpu: {peak: 1TFLOPS}}
device: cpu
levels:
  - {name: server, size: 4, bandwidth: 10GB/s, latency: 5us}
  - {name: rack, size: 2, bandwidth: 1GB/s, latency: 30us}
`))
	if err != nil {
		t.Fatal(err)
	}
	// written returns a cluster like that of doctor --links, for hosts with these numbers of processes.
	written := func(workers int, processes ...int) *cluster.Cluster {
		link := cluster.Link{LatencyS: 1e-6, BandwidthBytesPerSecond: 1e9}
		h := cluster.Hosts{Process: link, Host: link, Network: link, Types: map[string]cluster.DeviceType{"cpu": {}}}
		for host, n := range processes {
			for range n {
				h.Members = append(h.Members, cluster.Member{Host: fmt.Sprint(host), Type: "cpu", Workers: workers, Cores: 1})
			}
		}
		c, err := h.Cluster("written")
		if err == nil {
			c, err = cluster.Parse(strings.NewReader(c.Text()))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	stages := func(devices ...[]int) *plan.Plan {
		p := &plan.Plan{}
		for _, d := range devices {
			p.Stages = append(p.Stages, plan.Stage{Devices: d})
		}
		return p
	}
	for _, c := range []struct {
		name    string
		plan    *plan.Plan
		cluster *cluster.Cluster
		each    int
		want    []int
		refused string
	}{
		{"one host", stages([]int{0, 1}, []int{2}, []int{3}), nil, 1, []int{4}, ""},
		{"two hosts", stages([]int{0, 1, 2}, []int{3, 4, 5, 6, 7}), two, 1, []int{4, 4}, ""},
		{"two hosts, a process each", stages([]int{0, 1, 2}, []int{3, 4, 5, 6, 7}), two, 4, []int{1, 1}, ""},
		{"a host in part", stages([]int{4, 1, 2}, []int{3, 0, 5}), two, 2, []int{2, 2}, ""},
		{"a worker of two stages", stages([]int{0}, []int{1}, []int{0}, []int{1}), nil, 1, []int{2}, ""},
		{"half a process", stages([]int{0, 1, 2}), two, 3, nil, "host 0 has 4 workers, which are no whole processes of 3"},
		{"two hosts of one", stages([]int{0}, []int{1}), written(1, 1, 1), 1, []int{1, 1}, ""},
		{"two hosts of two processes of two", stages([]int{0, 1, 2, 3, 4, 5, 6, 7}), written(2, 2, 2), 2, []int{2, 2}, ""},
		{"unequal hosts", stages([]int{0, 1}, []int{2, 3}), written(1, 1, 3), 1, []int{1, 3}, ""},
		{"of unequal hosts a part", stages([]int{0, 1}), written(1, 1, 3), 1, []int{1, 3}, ""},
		{"a gap", stages([]int{0, 1}, []int{4, 5}), two, 1, []int{4, 4}, ""},
		{"no workers", stages(), nil, 1, nil, "the plan has no workers"},
		{"beyond", stages([]int{8}), two, 1, nil, "stage 0 of the plan is on device 8"},
		{"none", stages(), two, 1, nil, "no workers"},
		{"no size", stages([]int{0}), two, 0, nil, "0 workers in a process"},
	} {
		n, err := Workers(c.plan, c.cluster)
		var hosts []Host
		if err == nil {
			hosts, err = Place(n, c.cluster, c.each)
		}
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, %v; want %q", c.name, hosts, err, c.refused)
			}
			continue
		}
		var got []int
		for _, h := range hosts {
			got = append(got, h.Processes)
			if (h.Device == "cpu") != (c.cluster != nil) {
				t.Errorf("%s: a host of %q", c.name, h.Device)
			}
		}
		if err != nil || len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1] {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}
