package prepare

import (
	"fmt"
	"maps"
	"math"
	"os"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/blocking"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/shape"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// Shaped returns this machine's workers with the links of another cluster, which the job names as its wire.
func Shaped(j *job.Job, local *cluster.Cluster) (*cluster.Cluster, error) {
	of, err := wiredAs(j)
	if err != nil {
		return nil, err
	}
	c := *local.WithCores(local.Cores, len(local.Devices)) // all devices are one group that shares the cores
	c.Name, c.Levels, c.DeviceTypes = "local, wired as "+of.Name, of.Levels, maps.Clone(local.DeviceTypes)
	return &c, nil
}

// wiredAs reads the cluster whose links a job puts between its workers.
func wiredAs(j *job.Job) (*cluster.Cluster, error) {
	of, err := cluster.Read(j.Machine.Wire)
	if err != nil {
		return nil, err
	}
	if len(of.Devices) != j.Machine.Workers {
		return nil, fmt.Errorf("--wire %s has %d devices for %d workers; it must have as many", j.Machine.Wire,
			len(of.Devices), j.Machine.Workers)
	}
	return of, nil
}

// carrierVariable is the environment variable that selects another carrier. Tests use it to compare runs over each
// carrier.
const carrierVariable = "MILLRACE_CARRIER"

// carriers makes the carriers between the workers of a process, of the kind that the environment asks for.
func carriers(workers int) ([]wire.Carrier, error) {
	switch name := os.Getenv(carrierVariable); name {
	case "", "in-process":
		return wire.InProcess(workers)
	case "pipe":
		return pipe.New(workers)
	case "blocking":
		return blocking.New(workers)
	case "tcp":
		return tcp.New(workers)
	default:
		return nil, fmt.Errorf("%s is %q; it is in-process, pipe, blocking or tcp", carrierVariable, name)
	}
}

// CarriersOf returns a function that makes the carriers between a job's workers. If the job names a wire, the carriers
// are as slow as the wire's links.
func CarriersOf(j *job.Job, c *cluster.Cluster) func(workers int) ([]wire.Carrier, error) {
	if j.Machine.Wire == "" {
		return carriers
	}
	uses := map[[2]int]int{} // by link: number of pairs of workers whose messages use it
	for from := range len(c.Devices) {
		for to := range len(c.Devices) {
			if from != to {
				for _, link := range c.Links(from, to) {
					uses[link]++
				}
			}
		}
	}
	number := map[[2]int]int{}
	return func(workers int) ([]wire.Carrier, error) {
		all, err := carriers(workers)
		if err != nil {
			return nil, err
		}
		return shape.New(all, func(from, to int) shape.Link {
			if from == to {
				return shape.Link{}
			}
			latency, _ := c.Transfer(from, to, 0)
			_, perGiga := c.Transfer(from, to, 1e9)
			l := shape.Link{Latency: time.Duration(math.Round(latency * 1e9))}
			if perGiga > 0 {
				l.BytesPerSecond = 1e9 / perGiga
			}
			for _, link := range c.Links(from, to) {
				if uses[link] > 1 {
					if number[link] == 0 {
						number[link] = len(number) + 1
					}
					l.Shared = append(l.Shared, number[link])
				}
			}
			return l
		})
	}
}
