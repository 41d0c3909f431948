package clusters

// Identities of service accounts, which one logical cluster has.
const (
	// IdentityClusterExtra is the extra of a user that names the logical cluster whose service account it is. It is
	// kcp's.
	IdentityClusterExtra = "authentication.kcp.io/cluster-name"
	// IdentityGroupPrefix begins the groups that a service account has in all clusters but its own:
	// <prefix><cluster> for all accounts of a cluster, and <prefix><cluster>:<namespace>:<name> for one.
	IdentityGroupPrefix = "system:cluster:"
)
