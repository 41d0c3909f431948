package electiontest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Requests are all kinds of requests.
var Requests = []Request{List, Watch, Create, Update, Delete}

// Mishaps are what can happen to requests for a long time, by what people say of it.
var Mishaps = map[string]Fault{
	"is forbidden":  {Err: apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))},
	"hangs":         {Hang: true},
	"fails":         {Err: apierrors.NewServiceUnavailable("refused by the test")},
	"is not found":  {Err: apierrors.NewNotFound(coordinationv1.Resource("leases"), "")},
	"loses answers": {LoseReply: true},
}

// AnyMishap returns one of Mishaps, and the kinds of requests to which it happens: one of them, or all.
func AnyMishap(r *rand.Rand) (name string, fault Fault, of []Request) {
	names := slices.Sorted(maps.Keys(Mishaps))
	name = names[r.IntN(len(names))]
	if of = Requests; r.IntN(4) > 0 {
		of = []Request{of[r.IntN(len(of))]}
	}
	return name, Mishaps[name], of
}
