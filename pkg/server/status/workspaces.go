package status

// Workspaces are those that a search has found, ordered by path.
type Workspaces struct {
	Items []Workspace `json:"items"`
	// More says that there are others, or that a shard has not answered (Faults, by shard).
	More   bool              `json:"more,omitempty"`
	Faults map[string]string `json:"faults,omitempty"`
}

// Workspace is one workspace. Shard is the one that stores the Workspace, and Home the one that has its logical
// cluster. Unreachable says that Shard does not hear Home: Phase is what Home has said last.
type Workspace struct {
	Path        string `json:"path"`
	Cluster     string `json:"cluster"`
	Phase       string `json:"phase"`
	Shard       string `json:"shard"`
	Home        string `json:"home,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
}
