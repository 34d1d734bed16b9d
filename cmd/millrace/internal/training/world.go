package training

import (
	"fmt"

	"github.com/millrace-ml/millrace/launch"
)

// alone refuses a process that was started with others: each would train by itself.
func alone(environment []string) error {
	w, err := launch.FromEnv(environment)
	if err != nil {
		return err
	}
	if w.Size > 1 {
		return fmt.Errorf("this process is %v, and training is in one process; start one alone, or set %s=%s where each "+
			"is to "+
			"train by itself", w, launch.LauncherVar, launch.None)
	}
	return nil
}
