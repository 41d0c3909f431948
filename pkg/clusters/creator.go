package clusters

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// serviceAccountPrefix begins the user names of service accounts, as <prefix><namespace>:<name>.
const serviceAccountPrefix = "system:serviceaccount:"

// EncodeCreator returns the value of kcp's annotation experimental.tenancy.kcp.io/owner of a Workspace: who has created
// it, and so is to be the administrator of its logical cluster. The user's groups are left out, because others can read
// the Workspace.
func EncodeCreator(name string, extra map[string][]string) string {
	who := authenticationv1.UserInfo{Username: name}
	if home := extra[IdentityClusterExtra]; len(home) > 0 {
		who.Extra = map[string]authenticationv1.ExtraValue{IdentityClusterExtra: home}
	}
	out, _ := json.Marshal(who) // strings only
	return string(out)
}

// CreatorOf reads the annotation's value. It returns the creator as bindings in the new logical cluster do. A service
// account is a group there, because only its own cluster knows it as an account.
func CreatorOf(annotation string) (rbacv1.Subject, error) {
	var who authenticationv1.UserInfo
	if err := json.Unmarshal([]byte(annotation), &who); err != nil {
		return rbacv1.Subject{}, fmt.Errorf(`the owner must be JSON, as {"username":"ann"}: %w`, err)
	}
	account, isAccount := strings.CutPrefix(who.Username, serviceAccountPrefix)
	home := who.Extra[IdentityClusterExtra]
	switch {
	case who.Username == "":
		return rbacv1.Subject{}, errors.New("the owner has no username")
	case isAccount && len(home) != 1:
		return rbacv1.Subject{}, fmt.Errorf("the owner is a service account: extra must name its logical cluster as %s", IdentityClusterExtra)
	case isAccount:
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: IdentityGroupPrefix + home[0] + ":" + account}, nil
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who.Username}, nil
}
