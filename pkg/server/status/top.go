package status

import "time"

// Top is what a replica was asked for by its clients since it began, by logical cluster. Two answers make a rate.
// Controllers' own requests do not count.
type Top struct {
	Shard   string `json:"shard"`
	Replica string `json:"replica"`
	// Observed is when the answer was made, by the replica's clock.
	Observed time.Time `json:"observed"`
	// All are the requests of all clusters together, also of those that are not among Clusters.
	All RequestCounts `json:"all"`
	// Clusters are the 256 busiest, lately, in no order.
	Clusters []ClusterCounts `json:"clusters"`
}

// ClusterCounts are what was asked for in one logical cluster.
type ClusterCounts struct {
	Cluster string `json:"cluster"`
	// Path is the cluster's path, if the replica knows it.
	Path string `json:"path,omitempty"`
	// Since is when it was counted first. It is another time if the replica had forgotten it meanwhile, because
	// others were busier.
	Since time.Time `json:"since"`
	RequestCounts
}

// RequestCounts are numbers of requests since a time. Watches count when they end.
type RequestCounts struct {
	Requests uint64 `json:"requests"`
	// Writes are those among them that were to change something. Refused are writes that were answered with 403,
	// 412, 422 or 429.
	Writes  uint64 `json:"writes"`
	Refused uint64 `json:"refused"`
	// Failed are requests that were answered with 5xx, TooMany those with 429.
	Failed  uint64 `json:"failed"`
	TooMany uint64 `json:"tooMany"`
	// PlaceSeconds is how long requests have held places: one place for a second, or two for half of it
	// (docs/TENANCY.md says what a place is).
	PlaceSeconds float64 `json:"placeSeconds"`
}
