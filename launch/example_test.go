package launch_test

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/launch"
)

// torchrun's variables give the rank of this process and where to meet the others. torchrun itself uses MASTER_PORT.
func ExampleFromEnv() {
	w, err := launch.FromEnv([]string{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node-a",
		"MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True"})
	fmt.Println(w, err)
	fmt.Println(w.Meet(), w.Token)
	_, err = launch.FromEnv([]string{"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=node-a", "PMI_RANK=0", "PMI_SIZE=2"})
	fmt.Println(strings.NewReplacer(", ", ",\n", "; ", ";\n").Replace(err.Error()))
	// Output:
	// rank 3 of 4, 1 of 2 on its host, started by torchrun <nil>
	// node-a:29501 the user's own file
	// launch: two launchers contradict each other: torchrun says rank 3 of 4 (RANK=3 WORLD_SIZE=4),
	// MPICH (PMI) says rank 0 of 2 (PMI_RANK=0 PMI_SIZE=2);
	// unset the variables of one,
	// or name the one that counts: MILLRACE_LAUNCHER=torchrun,
	// mpich or none
}
