// Package planners registers the planners of this repository with package plan.
//
// Programs and tests that look up planners by name import this package with the blank name. The package has no input;
// its only output is the registry's entries, which plan.Planners lists. A new planner is a package that calls
// plan.RegisterPlanner in an init function, plus an import below.
package planners

import (
	_ "github.com/millrace-ml/millrace/plan/avgpipe"
	_ "github.com/millrace-ml/millrace/plan/bapipe"
	_ "github.com/millrace-ml/millrace/plan/dapple"
	_ "github.com/millrace-ml/millrace/plan/pipedream"
)
