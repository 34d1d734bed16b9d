package launch

import "slices"

// LostPeer is the exit code of a process that has lost another one.
const LostPeer = 3

// Stopped lists the exit codes of a process that was told to stop.
var Stopped = []int{129, 130, 143}

// Again lists the exit codes after which another start may help: a peer was lost, or the process was told to stop or
// killed. After an error of millrace, bad input or a crash, the code is another one, and another start does not help.
var Again = []int{LostPeer, 129, 130, 137, 143}

// Retry says whether a run may start again after an exit code.
func Retry(code int) bool { return slices.Contains(Again, code) }
