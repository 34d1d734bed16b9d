// Package planners registers the planners of this repository with package plan.
//
// In: nothing; it is imported for its effect, with the blank name, by programs and tests that ask plan for a
// planner by its name. Out: nothing but the registry's entries, which plan.Planners lists. A new planner is a
// package that calls plan.RegisterPlanner in an init function, and a line below.
package planners

import (
	_ "github.com/millrace-ml/millrace/plan/avgpipe"
	_ "github.com/millrace-ml/millrace/plan/bapipe"
	_ "github.com/millrace-ml/millrace/plan/dapple"
	_ "github.com/millrace-ml/millrace/plan/pipedream"
)
