package cluster_test

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
)

// A preset is the cluster of a paper or of a cloud provider, or a machine that one can buy. A suffix after a colon
// changes its size.
func ExamplePreset() {
	c, err := cluster.Preset("dapple-a:2x4")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(c.Devices), "devices of type", c.Devices[0])
	for _, l := range c.Levels {
		fmt.Printf("%s: %d, links of %.4g GB/s\n", l.Name, l.Size, l.BandwidthBytesPerSecond/1e9)
	}
	// Output:
	// 8 devices of type v100
	// server: 4, links of 25 GB/s
	// rack: 2, links of 3.125 GB/s
}
