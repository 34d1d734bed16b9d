package manifest

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// Workers is how many workers a plan has on the devices of a cluster; a nil cluster is as large as need be.
// Refused: devices in the middle of others that have no worker, since ranks count through them.
func Workers(p *plan.Plan, c *cluster.Cluster) (int, error) {
	used := map[int]bool{}
	most := 0
	for i, s := range p.Stages {
		for _, d := range s.Devices {
			if d < 0 || c != nil && d >= len(c.Devices) {
				return 0, fmt.Errorf("manifest: stage %d of the plan is on device %d, which the cluster does not have", i, d)
			}
			used[d] = true
			most = max(most, d+1)
		}
	}
	if len(used) == 0 {
		return 0, fmt.Errorf("manifest: the plan has no workers")
	}
	if len(used) != most {
		return 0, fmt.Errorf("manifest: the plan uses %d of the devices 0 to %d; processes are started on hosts, and "+
			"cannot leave devices out in between: plan for a cluster of what is used", len(used), most-1)
	}
	return most, nil
}

// Place puts the processes of a run where its workers are: as many to each host as its workers make, some
// workers in each process. Hosts are the cluster's; a nil cluster is one host.
//
// Workers are numbered as the cluster's devices are. Refused: hosts whose workers are not whole processes.
func Place(workers int, c *cluster.Cluster, workersPerProcess int) ([]Host, error) {
	if workersPerProcess < 1 {
		return nil, fmt.Errorf("manifest: %d workers in a process; give 1 at least", workersPerProcess)
	}
	sizes := []int{workers}
	if c != nil {
		sizes = c.HostSizes()
	}
	var hosts []Host
	first := 0 // device of a host
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
			h.Device = c.Devices[first]
		}
		hosts, first = append(hosts, h), first+size
	}
	return hosts, nil
}
