package lease

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is the object that stands for the life of a process which holds the lease for life. Its name is empty if that is no Lease:
// then the garbage collector knows it, which deletes the election's Lease with it.
type Life struct {
	Name string
	UID  types.UID
}

// lifePrefix begins the names of the Leases that stand for the lives of processes. They end with the process's uuid.
const lifePrefix = "replica-"

// leaseKind is the type of such an object.
var leaseKind = coordinationv1.SchemeGroupVersion.WithKind("Lease")

// LifeName is the name of the Lease that stands for the life of a process.
func LifeName(process string) string { return lifePrefix + process }

// StandsForLife reports whether lease is one that stands for the life of a process.
func StandsForLife(lease *coordinationv1.Lease) bool {
	process, ok := strings.CutPrefix(lease.Name, lifePrefix)
	_, said := saidPresence(lease)
	return ok && said && uuid.Validate(process) == nil
}

// OwnerReference is how another object names lease as its owner.
func OwnerReference(lease *coordinationv1.Lease) *metav1.OwnerReference {
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: lease.Name, UID: lease.UID}
}

// LifeOf is what stands for the life of the holder of a lease for life. What the holder says counts, also if somebody has taken that
// owner off; if it says nothing any more, the owner.
func LifeOf(lease *coordinationv1.Lease) Life {
	if p, said := saidPresence(lease); said {
		return Life{Name: p.Life, UID: p.Owner}
	}
	return lifeAmongOwners(lease)
}

// lifeAmongOwners is the owner that is a Lease for a process's life.
func lifeAmongOwners(lease *coordinationv1.Lease) Life {
	if lease == nil {
		return Life{}
	}
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	for _, owner := range lease.OwnerReferences {
		if owner.APIVersion == apiVersion && owner.Kind == kind && strings.HasPrefix(owner.Name, lifePrefix) {
			return Life{Name: owner.Name, UID: owner.UID}
		}
	}
	return Life{}
}

// TermOwner is the owner that the election itself gave the Lease, nil if there is none. That stands whoever holds the Lease now.
func TermOwner(lease *coordinationv1.Lease) *metav1.OwnerReference {
	if i := termOwner(lease); i >= 0 {
		return &lease.OwnerReferences[i]
	}
	return nil
}

// disown takes that owner off. Owners that others have given the Lease stay.
func disown(lease *coordinationv1.Lease) {
	if i := termOwner(lease); i >= 0 {
		lease.OwnerReferences = slices.Delete(slices.Clone(lease.OwnerReferences), i, i+1)
	}
}

// termOwner is the index of that owner, -1 if there is none.
func termOwner(lease *coordinationv1.Lease) int {
	uid := lifeAmongOwners(lease).UID
	if p, some := PresenceOn(lease); some {
		uid = p.Owner
	}
	return slices.IndexFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}
