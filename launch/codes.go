package launch

import "slices"

// Exit codes tell a launcher what to do.
var (
	// Final are those after which no other start helps: our error, bad input.
	Final = []int{1, 2}
	// Again are those after which another start may: a peer was lost, or the process was told to stop or killed.
	Again = []int{LostPeer, 129, 130, 137, 143}
)

// LostPeer is the exit code of a process that has lost another one.
const LostPeer = 3

// Retry says whether a run may start again after an exit code.
func Retry(code int) bool { return slices.Contains(Again, code) }
