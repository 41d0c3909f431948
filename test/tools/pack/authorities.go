package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"slices"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities returns the certificates of the public authorities that Mozilla trusts, as the Go project keeps them, in
// PEM. The image has no system from which they could come, and issuers of logins and webhooks may have certificates of
// theirs. An authority that is trusted with constraints is left out, because a file cannot say so.
func authorities() []byte {
	var all [][]byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all = append(all, root.Certificate)
		}
	}
	slices.SortFunc(all, func(a, b []byte) int {
		x, y := sha256.Sum256(a), sha256.Sum256(b)
		return bytes.Compare(x[:], y[:])
	})
	var out []byte
	for _, der := range all {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}
