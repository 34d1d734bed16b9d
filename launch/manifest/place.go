package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// Workers returns how many workers a run of a plan has: one on each device of the cluster. If the cluster is nil, this
// number is one more than the plan's highest device number. Workers on devices without a stage wait for the others.
func Workers(p *plan.Plan, c *cluster.Cluster) (int, error) {
	most := 0
	for i, s := range p.Stages {
		for _, d := range s.Devices {
			if d < 0 || c != nil && d >= len(c.Devices) {
				return 0, fmt.Errorf("manifest: stage %d of the plan is on device %d, which the cluster does not have", i, d)
			}
			most = max(most, d+1)
		}
	}
	if most == 0 {
		return 0, fmt.Errorf("manifest: the plan has no workers")
	}
	if c != nil {
		return len(c.Devices), nil
	}
	return most, nil
}

// Place assigns the processes of a run to hosts, with the given number of workers in each process. Each host gets as
// many processes as its devices need. The hosts are those of the cluster; a nil cluster is one host. Hosts that get no
// worker are left out.
//
// Workers are numbered like the cluster's devices. Place refuses hosts whose workers do not fill whole processes.
func Place(workers int, c *cluster.Cluster, workersPerProcess int) ([]Host, error) {
	if workersPerProcess < 1 {
		return nil, fmt.Errorf("manifest: %d workers in a process; give 1 at least", workersPerProcess)
	}
	sizes := []int{workers}
	if c != nil {
		sizes = c.HostSizes()
	}
	var hosts []Host
	first := 0 // first device of a host
	for _, size := range sizes {
		here := min(size, workers)
		if workers -= here; here == 0 {
			break
		}
		if here%workersPerProcess != 0 {
			return nil, fmt.Errorf("manifest: host %d has %d workers, which are no whole processes of %d; give workers per "+
				"process that divide them", len(hosts), here, workersPerProcess)
		}
		h := Host{Processes: here / workersPerProcess}
		if c != nil {
			h.Device = strings.Join(slices.Compact(slices.Clone(c.Devices[first:first+size])), ", ")
		}
		hosts, first = append(hosts, h), first+size
	}
	return hosts, nil
}
