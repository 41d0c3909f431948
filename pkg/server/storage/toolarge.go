package storage

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tooLarge says of a write that etcd does not take because of its size what whoever has made it can do. Both etcd and
// its client refuse. Neither's words would mean anything to a user, and the answer would be 500.
func tooLarge(err error, size int) error {
	refused := errors.Is(err, rpctypes.ErrRequestTooLarge) || status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
	if !refused {
		return err
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes %d bytes, which is more than storage can hold of one: make it smaller, or make several of it", size))
}
