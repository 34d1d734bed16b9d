package process

// A Wait is a place where a run blocks until a device has come somewhere, or gives back to it what it has not
// got. On a CPU none of them ever blocks; a test leaves out one after the other on devices that are late, and
// each shows. Waits that follow from these have no name:
//
//   - a receive takes tensors over at once: a message leaves when its tensors are complete (waitSent, in
//     package wire), so it arrives when they are
//   - collectives between stages and over replicas read host memory of members that have waited for their own
//   - an update reads gradients that its own device has made, or landed, in its order
//   - a computation reads what its own device has made, in its order; the next one is told to the device when
//     at most Ahead of those before it are not done (waitDone)
//   - evaluations, and the distance of pipelines from their reference, read numbers by Item and by ToHost in
//     one place each, which wait by themselves: Device.Item, Stage.Apart
//   - tensors are freed in the device's order
type Wait string

const (
	waitSent      Wait = "tensors of a message"                   // in front of its leaving
	waitGradients Wait = "gradients that replicas sum"            // in host memory
	waitTied      Wait = "gradients of tied parameters"           // in host memory
	waitLanded    Wait = "sums that go back"                      // to the device: it must be told
	waitSquares   Wait = "squares of gradients"                   // in front of the global norm
	waitLosses    Wait = "losses"                                 // in front of what is made of gradients
	waitDone      Wait = "computations"                           // in front of saying that they are done
	WaitValidated Wait = "computations in front of a step's mark" // where updates are validated later
	waitSaved     Wait = "tensors of a checkpoint"
	waitWeights   Wait = "weights that a run leaves"
)

// Waits lists them.
var Waits = []Wait{
	waitSent, waitGradients, waitTied, waitLanded, waitSquares, waitLosses, waitDone, WaitValidated, waitSaved,
	waitWeights,
}

// waits says whether a wait is made: all are, but in a test that leaves one out.
func (j *Job) waits(at Wait) bool { return j.Without != at }
