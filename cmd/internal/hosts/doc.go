// Package hosts finds out what the hosts of a run are, and makes a cluster of them to plan for.
//
// In: the processes of a run that have met, before it begins. Rank 0 asks each process what its host has, has one
// process of each host type measure what the model costs there, and two processes of each level of links how
// these do. Out: a Survey, and of it a profile of all host types, a cluster whose devices are the workers there
// will be, host by host, and where each of them is. Refused: a cluster file that is not of these hosts, with who
// differs and what.
package hosts
