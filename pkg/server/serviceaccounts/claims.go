// Package serviceaccounts makes the tokens of service accounts, and says whose a token is. A service account is of one
// logical cluster, and so is its token: the claims name the cluster.
//
// A token is a signed JWT with upstream's claims. It is worth nothing once the account has gone: each use looks whether
// the account, and the Secret to which the token may be bound, still have the uids that it names.
package serviceaccounts

import (
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apimachinery/pkg/types"
)

// claims are what a token says.
type claims struct {
	jwt.Claims
	Private private `json:"kubernetes.io"`
}

// private are upstream's private claims, and kcp's for the logical cluster.
type private struct {
	ClusterName string     `json:"clusterName"`
	Namespace   string     `json:"namespace"`
	Account     reference  `json:"serviceaccount"`
	Secret      *reference `json:"secret,omitempty"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}
