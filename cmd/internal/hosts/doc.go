// Package hosts finds out what the hosts of a run have, and makes a cluster of them to plan for.
//
// In: the processes of a run, after they have met and before the run begins. Rank 0 asks each process what its host
// has. One process of each host type measures the model's costs, and two processes of each level of links measure the
// link. Out: a Survey, and with it a profile of all host types, a cluster and the places of its devices. The cluster
// has one device for each worker, host by host. Refused: a cluster file that does not describe these hosts; the error
// says which host differs, and how.
package hosts
