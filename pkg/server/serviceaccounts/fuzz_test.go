package serviceaccounts

import (
	"bytes"
	"crypto/elliptic"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sameContent says whether two tokens decode to the same: of the last character of each part some bits mean nothing, so
// other text can be the same token.
func sameContent(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	return slices.EqualFunc(as, bs, func(a, b string) bool {
		x, err := base64.RawURLEncoding.DecodeString(a)
		y, otherErr := base64.RawURLEncoding.DecodeString(b)
		return err == nil && otherErr == nil && bytes.Equal(x, y)
	})
}

// FuzzTokens checks that whatever a client sends is nobody's, unless it is the token that was issued, and never ends
// the process.
func FuzzTokens(f *testing.F) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	issuer := newIssuer(f, newECDSA(f, elliptic.P256()))
	a := NewAuthenticator(issuer, w)
	genuine := issue(f, issuer, nil)
	parts := strings.Split(genuine, ".")
	for _, token := range []string{
		genuine, genuine + ".", "." + genuine, parts[0] + "." + parts[1] + ".", ".." + parts[2], "{" + genuine, genuine + " ", genuine + "=",
		`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if resp, ok, err := a.AuthenticateToken(t.Context(), token); ok && (err != nil || !sameContent(token, genuine)) {
			t.Errorf("%q is %v, %v", token, resp.User, err)
		}
	})
}

// Whatever is changed of a token's content, it is nobody's.
func TestNoTokenSurvivesAChange(t *testing.T) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
	a := NewAuthenticator(issuer, w)
	genuine := issue(t, issuer, nil)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(genuine)-1).Draw(t, "at")
		with := letters[rapid.IntRange(0, len(letters)-1).Draw(t, "with")]
		changed := genuine[:at] + string(with) + genuine[at+1:]
		if rapid.Bool().Draw(t, "shorter") {
			changed = genuine[:at] + genuine[at+1:]
		}
		if sameContent(changed, genuine) {
			return
		}
		if _, ok, err := a.AuthenticateToken(t.Context(), changed); ok {
			t.Errorf("%q for %q at %d: %v", changed[at], genuine[at], at, err)
		}
	})
}
